"""Objects in the caller's hands: jobs, batches, schedules, sources."""
