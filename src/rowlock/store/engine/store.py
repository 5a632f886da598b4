"""What the two engines have in common: the `Store` protocol, which everything above uses, its options and its URLs."""

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


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to open a database, beyond its URL."""

    pooler: str = "session"  # "transaction": no prepared statements, no session state
    direct_url: str | None = None  # for LISTEN, when `url` goes through a transaction pooler
    connections: int = 4  # for the engine's own statements
    session_connections: int | None = None  # for users' transactions; None: one for each slot of a worker, plus 20
    session_patience: float = 30.0  # longest wait for one of these connections
    idle_seconds: float = 60.0  # longest that a user's transaction on a server may be left without a statement
    statement_seconds: float = 30.0  # longest statement in a user's transaction
    transaction_seconds: float = 5.0  # longest SQLite transaction of a user: it holds the only writer lock
    migrate: bool | None = None  # None: SQLite migrates by itself, PostgreSQL does not
    clock: FakeClock | None = None
    command_timeout: float = 30.0
    read_seconds: float | None = None  # a read that takes longer is ended, with TooSlow
    repeats: int = 5  # tries of one operation, where a repeat is harmless
    name: str = "rowlock"


class Runs(Protocol):
    """Where an operation can run: a store, an open transaction, the caller's own connection."""

    async def run(self, op: Operation[T]) -> T: ...


class Session(Protocol):
    """An open transaction: operations and the user's own SQL in it commit together."""

    async def run(self, op: Operation[T]) -> T: ...
    async def execute(self, sql: str, *args: Any) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[UserRow]: ...
    def savepoint(self) -> AbstractAsyncContextManager[Session]: ...


class Wakeups(Protocol):
    """Wake-ups for one worker. `address` is stored with the worker on engines that send wake-ups to addresses."""

    address: str | None

    async def close(self) -> None: ...


class Store(Protocol):
    """A database that runs operations. Both engines are one of these; nothing outside the store asks which."""

    engine: str
    dialect: Dialect
    writers: int  # how many writes may go on side by side
    clock: FakeClock | None
    migrated: list[str]  # the migrations that opening has applied
    outage: Outage  # where the parts of a worker report that the database cannot be used

    async def run(self, op: Operation[T]) -> T: ...
    def transaction(self) -> AbstractAsyncContextManager[Block]: ...
    def expect_transactions(self, number: int) -> None: ...  # users' transactions open at the same time
    async def listen(self, on_wakeup: Callable[[str], None]) -> Wakeups: ...
    async def fetch(self, sql: str, *args: Any) -> list[UserRow]: ...  # the user's own query, which changes nothing
    async def execute(self, sql: str) -> None: ...  # one statement of the store's own, not in a transaction of ours
    async def close(self) -> None: ...
    def abandon(self) -> None: ...  # close after the event loop that the store belongs to has ended
    async def describe(self) -> dict[str, str]: ...
    async def try_write(self) -> int | None: ...  # raises what a write raises now; the free bytes, where known


def dialect_of(url: str) -> Dialect:
    """The dialect of the engine that a database URL names."""
    scheme = url.split(":", 1)[0]
    if scheme not in SCHEMES:
        raise ConfigError(f"database URL {redact(url)!r} must start with sqlite:/// or postgresql://")
    return SCHEMES[scheme]


def file_of(url: str, folder: str | None = None) -> Path:
    """The file that a sqlite:/// URL names: from the root, without symbolic links on the way."""
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
    """The URL with an absolute path, so that it names one file even if the current folder or a symbolic link changes. A
    relative path starts at `folder`, or at the current folder. The URL of a server is returned unchanged."""
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
