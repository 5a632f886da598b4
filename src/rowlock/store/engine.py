"""`open_store(url)`: the one door to a database. Everything above speaks to the `Store` protocol and to operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rowlock.core.clock import FakeClock
from rowlock.core.errors import ConfigError
from rowlock.store.operation import Operation, Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to open a database, beyond its URL."""

    pooler: str = "session"  # "transaction": no prepared statements, no session state
    direct_url: str | None = None  # for LISTEN, when `url` goes through a transaction pooler
    connections: int = 4  # for the engine's own statements
    session_connections: int = 20  # for users' transactions, which may hold theirs for long
    transaction_seconds: float = 5.0  # longest SQLite transaction of a user: it holds the only writer lock
    migrate: bool | None = None  # None: SQLite migrates by itself, PostgreSQL does not
    clock: FakeClock | None = None
    command_timeout: float = 30.0
    repeats: int = 5  # tries of one operation, where a repeat is harmless
    name: str = "rowlock"


class Session(Protocol):
    """An open transaction: operations and the user's own SQL in it commit together."""

    async def run(self, op: Operation[T]) -> T: ...
    async def execute(self, sql: str, *args: Any) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[Row]: ...
    def savepoint(self) -> AbstractAsyncContextManager[None]: ...


class Bell(Protocol):
    """Wake-ups for one worker. `address` is stored with the worker on engines that ring by address."""

    address: str | None

    async def close(self) -> None: ...


class Store(Protocol):
    """A database that runs operations. Both engines are one of these; nothing outside the store asks which."""

    engine: str
    writers: int  # how many writes may go on side by side
    clock: FakeClock | None
    migrated: list[str]  # the migrations that opening has applied

    async def run(self, op: Operation[T]) -> T: ...
    def transaction(self) -> AbstractAsyncContextManager[Session]: ...
    async def listen(self, heard: Callable[[str], None]) -> Bell: ...
    async def fetch(self, sql: str, *args: Any) -> list[Row]: ...  # the user's own query, which changes nothing
    async def execute(self, sql: str) -> None: ...  # one statement of the store's own, not in a transaction of ours
    async def close(self) -> None: ...
    def abandon(self) -> None: ...  # close, where the event loop that it belongs to has ended
    async def describe(self) -> dict[str, str]: ...


async def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open `sqlite:///path` or `postgresql://…`, checked and migrated as its options say."""
    options = options or StoreOptions()
    scheme = url.split(":", 1)[0]
    if scheme == "sqlite":
        from rowlock.store.sqlite import SqliteStore

        return await SqliteStore.open(url, options)
    if scheme in ("postgresql", "postgres"):
        try:
            from rowlock.store.postgres import PostgresStore
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


def redact(url: str) -> str:
    """A database URL without its password, for messages."""
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, _, credentials = head.partition("://")
    return f"{scheme}://{credentials.split(':', 1)[0]}@{tail}"
