"""Which migrations a database has, read without opening it as a store: that would create, migrate or refuse it."""

from __future__ import annotations

from rowlock.core.errors import StoreError
from rowlock.store.engines.engine import redact
from rowlock.store.migrate import applied_in_postgres, applied_in_sqlite


async def applied(url: str) -> tuple[str, dict[int, bool]]:
    """The engine, and the migrations that are applied, each with whether it is breaking."""
    if url.startswith("sqlite:"):
        return "sqlite", _sqlite(url)
    return "postgres", await _postgres(url)


def _sqlite(url: str) -> dict[int, bool]:
    import apsw

    from rowlock.store.engines.engine import file_of

    file = file_of(url)
    if not file.exists():
        return {}
    try:
        # Not READONLY: such a connection leaves its -wal and -shm files behind.
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return applied_in_sqlite(connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreError(f"cannot read {file}: {error}") from error


async def _postgres(url: str) -> dict[int, bool]:
    from rowlock.store.engines.connector import dial, place
    from rowlock.store.engines.postgres_errors import TROUBLE, translate

    try:
        connection = await dial(url, timeout=10, statement_cache_size=0)  # a pooler may be in between
        try:
            return await applied_in_postgres(connection)
        finally:
            await connection.close()
    except TROUBLE as error:
        raise translate(error, f"cannot open {redact(url)}", place(url)) from error
