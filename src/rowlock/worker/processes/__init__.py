"""Child processes that run jobs, and the quarantine child."""
