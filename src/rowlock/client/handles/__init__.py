"""The objects that callers get for jobs, batches, schedules and sources."""
