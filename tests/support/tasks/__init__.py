"""Tasks that tests and their child processes import."""
