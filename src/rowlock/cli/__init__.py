"""The command `rowlock`: one module for each group of verbs.

Drivers, rich and the app itself are imported inside the verbs, so that `--help` is quick.
"""
