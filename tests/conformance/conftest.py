"""The same bodies on both engines: `store` and `rig` come with a fake clock and a database of their own."""

from support.stores import clock, database, engine, rig, store, template

__all__ = ["clock", "database", "engine", "rig", "store", "template"]
