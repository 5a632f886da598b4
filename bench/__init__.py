"""Rowlock against its peers and against the bare engine, side by side in one run; see README.md."""
