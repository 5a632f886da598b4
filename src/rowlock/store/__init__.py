"""The database as the queue: operations on it, and the two engines that run them."""

from rowlock.store.engine.store import Store, open_store

__all__ = ["Store", "open_store"]
