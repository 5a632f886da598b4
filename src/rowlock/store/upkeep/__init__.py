"""Deleting what is old, partitions, repairs after a clock jump, rows that break a batch."""
