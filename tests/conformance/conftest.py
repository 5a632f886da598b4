"""The same bodies on both engines: `store` and `rig` come with a fake clock and a database of their own."""

from support.stores import clock, database, engine, rig, store, template, used_database, used_databases

__all__ = ["clock", "database", "engine", "rig", "store", "template", "used_database", "used_databases"]
