"""The tour that `rowlock demo` shows: one worker under a mixed load, with a job for each way a job can end."""
