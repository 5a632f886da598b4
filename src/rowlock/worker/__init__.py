"""Processes that work on jobs: they claim, execute, settle, send heartbeats, sweep and dispatch."""
