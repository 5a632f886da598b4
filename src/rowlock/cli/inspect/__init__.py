"""Verbs that show the state of the system: stats, top, doctor, a job's history."""
