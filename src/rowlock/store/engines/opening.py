"""`open_store(url)`: opens a database as the engine that its URL names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rowlock.core.errors import ConfigError
from rowlock.store.engines.engine import Store, StoreOptions, redact


async def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open `sqlite:///path` or `postgresql://…`, checked and migrated as its options say."""
    options = options or StoreOptions()
    scheme = url.split(":", 1)[0]
    if scheme == "sqlite":
        from rowlock.store.engines.sqlite import SqliteStore

        return await SqliteStore.open(url, options)
    if scheme in ("postgresql", "postgres"):
        try:
            from rowlock.store.engines.postgres import PostgresStore
        except ImportError as error:
            raise ConfigError(
                'PostgreSQL needs the driver: pip install "rowlock[postgres]" (asyncpg is missing)'
            ) from error
        return await PostgresStore.open(url, options)
    raise ConfigError(f"database URL {redact(url)!r} must start with sqlite:/// or postgresql://")


@asynccontextmanager
async def opened(url: str, options: StoreOptions | None = None) -> AsyncIterator[Store]:
    """`open_store` as a block."""
    store = await open_store(url, options)
    try:
        yield store
    finally:
        await store.close()
