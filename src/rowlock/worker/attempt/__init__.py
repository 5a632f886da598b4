"""One attempt: calling the task, progress, log lines, timeouts, and what its exception means."""
