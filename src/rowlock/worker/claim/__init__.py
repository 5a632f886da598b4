"""Claiming: which jobs to ask for next, and asking for them."""
