"""Schedules: their definitions, their ticks, and the dispatchers that fire them."""
