"""Notice every statement that Rowlock gives to a database driver, without knowing how Rowlock is built inside."""

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

CLAIM = "SET state = 'running'"  # only a claim has this in its text
RECORD = struct.Struct("<qq")  # monotonic ns at the end of a claim, ns that it took
Around = Callable[[str], AbstractContextManager[None]]


@contextmanager
def asyncpg_statements(around: Around) -> Iterator[None]:
    """Run each statement of the block within `around(sql)`."""
    from asyncpg import Connection
    from asyncpg.prepared_stmt import PreparedStatement

    fetch, fetch_prepared = Connection.fetch, PreparedStatement.fetch

    async def noticed(connection: Any, sql: str, *args: Any, **more: Any) -> Any:
        with around(sql):
            return await fetch(connection, sql, *args, **more)

    async def noticed_prepared(statement: Any, *args: Any, **more: Any) -> Any:
        with around(statement.get_query()):
            return await fetch_prepared(statement, *args, **more)

    Connection.fetch, PreparedStatement.fetch = noticed, noticed_prepared
    try:
        yield
    finally:
        Connection.fetch, PreparedStatement.fetch = fetch, fetch_prepared


@contextmanager
def apsw_statements(begun: Callable[[str], None]) -> Iterator[None]:
    """Call `begun(sql)` for each statement on a connection that is opened in the block."""
    import apsw

    def executed(cursor: Any, sql: str, bindings: Any) -> bool:
        begun(sql)
        return True

    def opened(connection: Any) -> None:
        connection.exec_trace = executed

    apsw.connection_hooks.append(opened)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(opened)


def time_claims(file: Path) -> AbstractContextManager[None]:
    """Append to a file when each claim on PostgreSQL ended and how long it took, as its worker saw it."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @contextmanager
    def around(sql: str) -> Iterator[None]:
        began = time.monotonic_ns()
        yield
        if CLAIM in sql:
            now = time.monotonic_ns()
            os.write(out, RECORD.pack(now, now - began))

    return asyncpg_statements(around)


def read_claims(file: Path) -> list[tuple[float, float]]:
    """(moment, seconds) of each claim so far."""
    data = file.read_bytes() if file.exists() else b""
    whole = data[: len(data) // RECORD.size * RECORD.size]
    return [(end / 1e9, took / 1e9) for end, took in RECORD.iter_unpack(whole)]
