"""Open connections to PostgreSQL, and keep the message with which the server ends one.

A statement after connecting makes the settings, because PgBouncer refuses a connection whose start-up packet names a
setting that it doesn't know (`unsupported startup parameter: jit`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import Any

import asyncpg

from rowlock.core.errors import ConfigError
from rowlock.store.engine.store import StoreOptions, redact

log = logging.getLogger("rowlock.store")

# A role or a database may have settings that were made for other programs. Our limits and counts are exact only at READ
# COMMITTED, where each statement sees everything that was committed before it.
SETTINGS = {
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
    "idle_session_timeout": "0",
}
# When an enqueue returns, its job must be on disk, so only `off` is replaced: the other values concern standbys.
SYNCED = "('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'))"
# Behind a transaction pooler, where nothing can be set: whether the role's own settings would break our promises.
UNSYNCED = "current_setting('synchronous_commit') = 'off'"
STRICT = "current_setting('default_transaction_isolation') <> 'read committed'"
NEWER = {"transaction_timeout": 17}  # settings that servers before this version don't know
TARGET = "PGTARGETSESSIONATTRS"  # libpq's variable, which asyncpg reads as well
PROBE_SECONDS = 3.0  # for each of the probes for a transaction pooler
PROBES = 5
# The fields of an ErrorResponse or NoticeResponse: severity (localized, then in English), code, message.
CLOSING_MESSAGE = re.compile(rb"[EN][\s\S]{4}S([^\0]+)\0(?:V([A-Z]+)\0)?C([0-9A-Z]{5})\0M([^\0]+)\0")
ERROR = ord("E")


class Connection(asyncpg.Connection):
    """An asyncpg connection that keeps the prepared insert of a single job, and the server's message if it ended it."""

    enqueue_one: Any = None  # the prepared statement
    ended: str | None = None  # the server's message
    # The first statement of each of our transactions, needed behind a transaction pooler whose role has another
    # isolation level or doesn't wait for the disk. With it, even a single statement needs a transaction.
    guard = ""
    retired = False  # its server has become read-only: close the connection when it is returned

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        transport.set_protocol(_Watch(self, protocol))

    def is_unfinished(self) -> bool:
        """Whether a transaction is open or may be. If a BEGIN failed, or was cancelled before its reply, asyncpg would
        make the next transaction a savepoint of that one, and nothing would commit it."""
        protocol: Any = self._protocol  # type: ignore[attr-defined]
        return self._top_xact is not None or protocol._is_cancelling() or protocol.is_in_transaction()  # type: ignore[attr-defined]


class _Watch(asyncio.Protocol):
    """Watches for the message with which the server ends the connection. asyncpg drops a message that comes between two
    statements, and fails the next one with `cannot switch to state …; another operation is in progress`."""

    def __init__(self, connection: Connection, inner: asyncio.Protocol) -> None:
        self._connection, self._inner, self._last = connection, inner, b""
        self.pause_writing, self.resume_writing = inner.pause_writing, inner.resume_writing  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        self._last = data
        self._inner.data_received(data)
        if data[0] == ERROR and (message := closing_message(data)):
            self._connection.ended = message
            self._connection.terminate()  # the server no longer reads from it, so no caller may use it

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.ended = self._connection.ended or closing_message(self._last)
        self._inner.connection_lost(error)


def closing_message(data: bytes) -> str | None:
    """The server's message that it is ending this connection, if there is one."""
    for severity, name, code, message in CLOSING_MESSAGE.findall(data):
        # An immediate shutdown and the crash of another backend are announced as warnings.
        if (name or severity) in (b"FATAL", b"PANIC") or code.startswith(b"57P"):
            return str(message, "utf-8", "replace")
    return None


class Connector:
    """Opens connections of one kind, with `settings` in addition to the common ones."""

    def __init__(self, url: str, options: StoreOptions, settings: dict[str, str]) -> None:
        self._url, self._options = url, options
        self._settings = SETTINGS | settings
        self._pooled = options.pooler == "transaction"
        self._warned = False  # that a role behind a transaction pooler has settings that cost round trips
        self._is_session_mode = False  # there is a pooler, and it was found to be in session mode
        self.place = place(url)

    async def connect(self, timeout: float) -> Connection:
        """A connection with its settings made."""
        connection = await self._open(timeout)
        try:
            # Don't change settings through a transaction pooler: its backends serve other programs as well.
            if self._pooled:
                connection.guard = await self._guard(connection)
            else:
                await self._set(connection)
            # Ids and tokens are text in Python on both engines.
            await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _open(self, timeout: float) -> Connection:
        options: dict[str, Any] = {"timeout": timeout, "command_timeout": self._options.command_timeout}
        if self._pooled:
            options["statement_cache_size"] = 0  # each transaction gets another backend
        else:
            options["server_settings"] = {"application_name": self._options.name}  # PgBouncer knows this one
        # If there are several hosts, choose the one that takes writes: after a failover, the first may be a standby.
        if has_several_hosts(self._url) and "target_session_attrs" not in self._url and TARGET not in os.environ:
            options["target_session_attrs"] = "read-write"
        return await dial(self._url, **options)

    async def _set(self, connection: Connection) -> None:
        version = connection.get_server_version().major
        known = {name: value for name, value in self._settings.items() if version >= NEWER.get(name, 0)}
        rows = ", ".join([SYNCED, *(f"('{name}', '{value}')" for name, value in known.items())])
        settings = f"SELECT set_config(name, value, false) FROM (VALUES {rows}) AS setting (name, value)"
        if connection.is_closed():  # asyncpg would raise AttributeError, which isn't recognized as a broken connection
            raise asyncpg.InterfaceError("the server closed the connection as soon as it was opened")
        # If the process id from the start-up differs from the backend's, there is a pooler in between.
        pid = connection.get_server_pid()
        if await connection.execute(f"{settings} WHERE pg_backend_pid() = {pid}") == "SELECT 0":
            await self._check_session_mode(connection)
            await connection.execute(settings)

    async def _guard(self, connection: Connection) -> str:
        """The first statement of our transactions, if the role's own settings would break our promises; else ''."""
        ((strict, unsynced),) = await connection.fetch(f"SELECT {STRICT}, {UNSYNCED}")
        if (strict or unsynced) and not self._warned:
            self._warned = True
            name = "default_transaction_isolation" if strict else "synchronous_commit"
            log.warning(
                "the role's %s is not the server's default: behind the pooler at %s each statement of Rowlock therefore"
                " takes three round trips; ALTER ROLE … RESET %s reduces them to one",
                name,
                self.place,
                name,
            )
        if unsynced:
            return "SET LOCAL synchronous_commit = on"
        return "SET LOCAL jit = off" if strict else ""

    async def _check_session_mode(self, connection: Connection) -> None:
        """Refuse a transaction pooler, because our settings would stay on backends that serve other programs as well.
        It can be recognized by a backend that serves two open connections, which never happens in session mode."""
        if self._is_session_mode:
            return
        try:
            second = await self._open(PROBE_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return  # no second connection is free; the next connection checks again
        try:
            # In session mode our backend never changes. Probe repeatedly, because the pooler has other clients as well.
            ours, theirs = set(), set()
            for _ in range(PROBES):
                ours.add(await _backend(connection))
                theirs.add(await _backend(second))
        except TimeoutError:
            return  # the pooler has no backend left for the second connection, so it does not share them
        finally:
            second.terminate()
        if len(ours) > 1 or len(theirs) > 1 or ours & theirs:
            raise ConfigError(
                f"the pooler at {self.place} gives one backend to two connections, so it is in transaction mode: "
                "set `pooler: transaction` in the config, or ROWLOCK_POOLER=transaction"
            )
        self._is_session_mode = True


async def _backend(connection: Connection) -> int:
    async with asyncio.timeout(PROBE_SECONDS), connection.transaction():  # one backend for all of it
        return await connection.fetchval("SELECT pg_backend_pid()")  # type: ignore[no-any-return]


async def dial(url: str, **options: Any) -> Connection:
    """`asyncpg.connect`, but the error for a URL that can't be parsed has no pieces of the password."""
    # Don't cancel it halfway: asyncpg would leave a future with an unread exception, which asyncio would print. If the
    # caller is cancelled, the finished connection is dropped.
    opening = asyncio.ensure_future(asyncpg.connect(url, connection_class=Connection, **options))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_drop)
        raise
    except ValueError as error:
        why = f": {error}" if isinstance(error, asyncpg.InterfaceError) else ""
        raise ConfigError(
            f"the database URL {redact(url)} cannot be read{why}; "
            "in a password, write % as %25, / as %2F, # as %23, ? as %3F and @ as %40"
        ) from None


def _drop(opening: asyncio.Future[Connection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().terminate()


def has_several_hosts(url: str) -> bool:
    """Whether a database URL names several servers, as its host or in the parameter `host`."""
    return "," in place(url) or re.search("[?&]host=[^&]*(,|%2C)", url) is not None


def place(url: str) -> str:
    """Host and port of a database URL, for messages, without user and password."""
    address = redact(url).partition("://")[2].rpartition("@")[2]
    return re.split("[/?]", address)[0] or "the local socket"
