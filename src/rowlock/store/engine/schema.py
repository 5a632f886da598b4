"""Which schema a database has, read without opening it as a store: that would create, migrate or refuse it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rowlock.core.errors import StoreError
from rowlock.store.engine.dialects import Dialect
from rowlock.store.engine.migrate import Applied, applied_in_postgres, applied_in_sqlite
from rowlock.store.engine.store import dialect_of, file_of, redact


async def applied(url: str) -> tuple[Dialect, Applied]:
    """The engine's dialect, and what the database has."""
    dialect = dialect_of(url)
    if dialect.is_file:
        return dialect, _in_file(file_of(url))
    async with connected(url, "cannot open") as connection:
        return dialect, await applied_in_postgres(connection)


def _in_file(file: Path) -> Applied:
    import apsw

    if not file.exists():
        return Applied()
    try:
        # Not READONLY: such a connection leaves its -wal and -shm files behind.
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return applied_in_sqlite(connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreError(f"cannot read {file}: {error}") from error


@asynccontextmanager
async def connected(url: str, cannot: str) -> AsyncIterator[Any]:
    """A connection to a PostgreSQL server for as long as the block runs; `cannot` begins the error if that fails."""
    from rowlock.store.engine.postgres.connector import dial, place
    from rowlock.store.engine.postgres.errors import TROUBLE, translate

    try:
        connection = await dial(url, timeout=10, statement_cache_size=0)  # a pooler may be in between
        try:
            yield connection
        finally:
            await connection.close()
    except TROUBLE as error:
        raise translate(error, f"{cannot} {redact(url)}", place(url)) from error
