"""Upkeep of the database: retention, partitions, repairs after a clock jump, rows that make a batch fail."""
