"""Shared by the verbs: options, output, exit codes, the target database."""
