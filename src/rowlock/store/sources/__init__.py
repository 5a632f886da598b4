"""Sources: claiming under their limits, settings, and what outcomes do to their breakers."""
