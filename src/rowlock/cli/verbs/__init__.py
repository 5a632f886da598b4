"""Verbs that read or change jobs, queues, sources, schedules, tokens and the schema."""
