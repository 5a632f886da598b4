"""Verbs that show how the system is doing: stats, top, doctor, a job's story."""
