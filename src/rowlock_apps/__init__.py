"""Whole systems that run on Rowlock, each on its public names alone: to use, to read, to copy from."""
