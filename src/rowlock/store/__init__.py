"""The database as the queue: operations on it, and the two engines that run them."""

from rowlock.store.engines.engine import Store
from rowlock.store.engines.opening import open_store

__all__ = ["Store", "open_store"]
