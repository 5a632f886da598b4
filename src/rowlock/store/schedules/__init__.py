"""Schedules: declaring them, firing their ticks, and the dispatchers that do it."""
