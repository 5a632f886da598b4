"""A temporary database for `rowlock bench`, on the same disk or server as the given one."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rowlock.cli.run.bench.raw import Raw, RawPostgres, RawSqlite
from rowlock.core.errors import ConfigError
from rowlock.store.engine.store import dialect_of, file_of, redact


@asynccontextmanager
async def scratch_database(url: str) -> AsyncIterator[tuple[str, Raw]]:
    """The URL of a new database and bare SQL on it; the database is dropped afterwards."""
    make = _scratch_file if dialect_of(url).is_file else _scratch_on_server
    async with make(url) as (scratch, raw):
        try:
            yield scratch, raw
        finally:
            await raw.close()


@asynccontextmanager
async def _scratch_file(url: str) -> AsyncIterator[tuple[str, Raw]]:
    folder = file_of(url).parent
    if not folder.is_dir():
        raise ConfigError(f"{url!r}: the folder {folder} does not exist")
    with tempfile.TemporaryDirectory(prefix="rowlock-bench-", dir=folder) as name:
        yield f"sqlite:///{Path(name) / 'jobs.db'}", RawSqlite(str(Path(name) / "raw.db"))


@asynccontextmanager
async def _scratch_on_server(url: str) -> AsyncIterator[tuple[str, Raw]]:
    from urllib.parse import urlsplit, urlunsplit

    import asyncpg

    from rowlock.store.engine.postgres.connector import dial, place
    from rowlock.store.engine.postgres.errors import TROUBLE, translate

    name = f"rowlock_bench_{secrets.token_hex(4)}"
    try:
        connection = await dial(url, timeout=10)
    except TROUBLE as error:
        raise translate(error, f"cannot open {redact(url)}", place(url)) from error
    try:
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        except asyncpg.InsufficientPrivilegeError:
            raise ConfigError(
                f"{redact(url)}: bench creates a temporary database, and this role lacks CREATEDB; "
                "give --database with a role that has it (ALTER ROLE … CREATEDB)"
            ) from None
        try:
            scratch = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
            yield scratch, await RawPostgres.open(scratch)
        finally:
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    finally:
        await connection.close()
