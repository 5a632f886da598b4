"""What both engines share: the `Store` protocol, which all code above uses, its options and its URLs."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from rowlock.core.errors import ConfigError, needs
from rowlock.core.times import FakeClock
from rowlock.store.engine.dialects import POSTGRES, SQLITE, Dialect
from rowlock.store.engine.operation import Operation, UserRow
from rowlock.store.engine.outage import Outage
from rowlock.store.engine.transactions import Block

T = TypeVar("T")
SCHEMES = {"sqlite": SQLITE, "postgresql": POSTGRES, "postgres": POSTGRES}
SECRET = re.compile(r"([?&](?:ssl)?password)=[^&]*", re.IGNORECASE)


async def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open `sqlite:///path` or `postgresql://…`, check its schema, and migrate it if the options say so."""
    options = options or StoreOptions()
    if dialect_of(url).is_file:
        from rowlock.store.engine.sqlite.store import SqliteStore

        return await SqliteStore.open(url, options)
    with needs("postgres", "PostgreSQL needs the driver asyncpg"):
        from rowlock.store.engine.postgres.store import PostgresStore
    return await PostgresStore.open(url, options)


@asynccontextmanager
async def opened(url: str, options: StoreOptions | None = None) -> AsyncIterator[Store]:
    """`open_store` as a context manager."""
    store = await open_store(url, options)
    try:
        yield store
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to open a database, beyond its URL."""

    pooler: str = "session"  # "transaction": don't use prepared statements or session state
    direct_url: str | None = None  # for LISTEN, if `url` goes through a transaction pooler
    connections: int = 4  # for the engine's own statements
    session_connections: int | None = None  # for users' transactions; None: one for each slot of a worker, plus 20
    session_patience: float = 30.0  # longest wait for one of these connections
    idle_seconds: float = 60.0  # longest time that a user's transaction on a server may stay without a statement
    statement_seconds: float = 30.0  # longest statement in a user's transaction
    transaction_seconds: float = 5.0  # longest user's transaction on SQLite: it holds the only writer lock
    migrate: bool | None = None  # None: migrate SQLite files, but not PostgreSQL databases
    clock: FakeClock | None = None
    command_timeout: float = 30.0
    read_seconds: float | None = None  # a read that takes longer is cancelled and raises TooSlow
    repeats: int = 5  # tries of one operation, if repeating it is harmless
    name: str = "rowlock"


class Runs(Protocol):
    """Anything that can run an operation: a store, an open transaction, the caller's own connection."""

    async def run(self, op: Operation[T]) -> T: ...


class Session(Protocol):
    """An open transaction, in which operations and the user's own SQL commit together."""

    async def run(self, op: Operation[T]) -> T: ...
    async def execute(self, sql: str, *args: Any) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[UserRow]: ...
    def savepoint(self) -> AbstractAsyncContextManager[Session]: ...


class Wakeups(Protocol):
    """Wake-ups for one worker. If the engine sends wake-ups to addresses, `address` is stored in the worker's row."""

    address: str | None

    async def close(self) -> None: ...


class Store(Protocol):
    """A database that runs operations. Both engines implement it; no code outside the store asks which one it has."""

    engine: str
    dialect: Dialect
    writers: int  # how many writes may run concurrently
    clock: FakeClock | None
    migrated: list[str]  # the migrations that were applied when it was opened
    outage: Outage  # to which the parts of a worker report that the database can't be used

    async def run(self, op: Operation[T]) -> T: ...
    def transaction(self) -> AbstractAsyncContextManager[Block]: ...
    def expect_transactions(self, number: int, seconds: float) -> None: ...  # users' transactions of a worker
    async def listen(self, on_wakeup: Callable[[str], None]) -> Wakeups: ...
    async def fetch(self, sql: str, *args: Any) -> list[UserRow]: ...  # the user's own query, which changes nothing
    async def execute(self, sql: str) -> None: ...  # one of Rowlock's own statements, outside of any transaction
    async def close(self) -> None: ...
    def abandon(self) -> None: ...  # close after the store's event loop has ended
    async def describe(self) -> dict[str, str]: ...
    async def try_write(self) -> int | None: ...  # raises the error that a write would raise; the free bytes, if known


def dialect_of(url: str) -> Dialect:
    """The dialect of the engine in a database URL."""
    scheme = url.split(":", 1)[0]
    if scheme not in SCHEMES:
        raise ConfigError(f"database URL {redact(url)!r} must start with sqlite:/// or postgresql://")
    return SCHEMES[scheme]


def file_of(url: str, folder: str | None = None) -> Path:
    """The file that a sqlite:/// URL names, as an absolute path without symbolic links."""
    path = _path_of(url)
    if not path:
        raise ConfigError(f"{url!r} names no file; write sqlite:///jobs.db (or sqlite:////absolute/jobs.db)")
    try:
        return Path(os.path.realpath(os.path.join(folder or "", path)))
    except OSError as error:
        raise ConfigError(
            f"{url!r}: the current folder cannot be read ({error}); write sqlite:////absolute/jobs.db"
        ) from error


def _path_of(url: str) -> str | None:
    path = unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else ""
    return path if path != ":memory:" else None


def absolute(url: str, folder: str | None = None) -> str:
    """The URL with an absolute path, so that it always names this file, even if the current folder or a symbolic link
    changes. Relative paths start at `folder`, or at the current folder. A server's URL is returned unchanged."""
    path = _path_of(str(url))
    if not path or path == (file := str(file_of(url, folder))):
        return url
    return "sqlite:///" + file.replace("%", "%25")


def here() -> str | None:
    """The current folder, if it still exists."""
    try:
        return os.getcwd()
    except OSError:
        return None


def redact(url: str) -> str:
    """A database URL without its password, for messages."""
    scheme, slashes, rest = url.rpartition("://")
    head, at, tail = SECRET.sub(r"\1=***", rest).rpartition("@")
    return scheme + slashes + head.split(":", 1)[0] + at + tail
