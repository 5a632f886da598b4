"""Sources: claims under their limits, their settings and pauses, and their circuit breakers."""
