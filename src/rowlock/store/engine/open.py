"""`open_store(url)`: opens a database as the engine that its URL names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rowlock.core.extras import needs
from rowlock.store.engine.store import Store, StoreOptions, dialect_of


async def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open `sqlite:///path` or `postgresql://…`, checked and migrated as its options say."""
    options = options or StoreOptions()
    if dialect_of(url).is_file:
        from rowlock.store.engine.sqlite.store import SqliteStore

        return await SqliteStore.open(url, options)
    with needs("postgres", "PostgreSQL needs the driver asyncpg"):
        from rowlock.store.engine.postgres.store import PostgresStore
    return await PostgresStore.open(url, options)


@asynccontextmanager
async def opened(url: str, options: StoreOptions | None = None) -> AsyncIterator[Store]:
    """`open_store` as a block."""
    store = await open_store(url, options)
    try:
        yield store
    finally:
        await store.close()
