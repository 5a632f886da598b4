"""Which migrations a database has, read without opening it as a store: that would create, migrate or refuse it."""

from __future__ import annotations

from rowlock.core.errors import StoreError
from rowlock.store.engine import redact


async def applied(url: str) -> tuple[str, dict[int, bool]]:
    """The engine, and the migrations that are applied, each with whether it is breaking."""
    if url.startswith("sqlite:"):
        return "sqlite", _sqlite(url)
    return "postgres", await _postgres(url)


def _sqlite(url: str) -> dict[int, bool]:
    import apsw

    from rowlock.store.engine import file_of

    file = file_of(url)
    if not file.exists():
        return {}
    try:
        # Not READONLY: such a connection leaves its -wal and -shm files behind.
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rowlock_migrations'").fetchall()
        rows = connection.execute("SELECT number, breaking FROM rowlock_migrations").fetchall() if tables else []
        connection.close()
    except apsw.Error as error:
        raise StoreError(f"cannot read {file}: {error}") from error
    return {int(str(number)): bool(breaking) for number, breaking in rows}


async def _postgres(url: str) -> dict[int, bool]:
    from rowlock.store.connector import dial, place
    from rowlock.store.postgres_errors import TROUBLE, translate

    try:
        connection = await dial(url, timeout=10, statement_cache_size=0)  # a pooler may be in between
        try:
            known = await connection.fetchval("SELECT to_regclass('rowlock.migrations')")
            rows = await connection.fetch("SELECT number, breaking FROM rowlock.migrations") if known else []
        finally:
            await connection.close()
    except TROUBLE as error:
        raise translate(error, f"cannot open {redact(url)}", place(url)) from error
    return {row[0]: row[1] for row in rows}
