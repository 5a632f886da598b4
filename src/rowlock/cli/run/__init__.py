"""Verbs that run until they are stopped: worker, dispatch, serve, bridge, up, demo, bench."""
