"""Read-only queries, each with a bounded cost."""
