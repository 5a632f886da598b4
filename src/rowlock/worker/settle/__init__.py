"""Writing outcomes: batches of them, and what to do with those that the database refuses."""
