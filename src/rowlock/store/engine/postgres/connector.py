"""Opens connections to PostgreSQL, and keeps the message with which the server ends one.

Settings are made by a statement after connecting, because PgBouncer refuses a connection whose start-up packet names a
setting that it does not know (`unsupported startup parameter: jit`).
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

# A role or a database may have settings that were made for other programs. Every limit and count of ours is exact under
# READ COMMITTED only, where each statement sees what was committed before it.
SETTINGS = {
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
    "idle_session_timeout": "0",
}
# A returned id means that the job is on the disk. The other values of this setting are about standbys: they stay.
SYNCED = "('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'))"
# Of a role behind a transaction pooler: what BEGIN ISOLATION LEVEL READ COMMITTED leaves to be set, or ''.
UNSYNCED = "current_setting('synchronous_commit') = 'off'"
STRICT = "current_setting('default_transaction_isolation') <> 'read committed'"
NEWER = {"transaction_timeout": 17}  # settings that older servers do not know
TARGET = "PGTARGETSESSIONATTRS"  # libpq's variable, which asyncpg reads as well
PROBE_SECONDS = 3.0  # for each question that finds out whether a transaction pooler is in between
PROBES = 5  # such questions
# The fields of an ErrorResponse or NoticeResponse: severity (in the server's language, then not), code, message.
LAST_WORDS = re.compile(rb"[EN][\s\S]{4}S([^\0]+)\0(?:V([A-Z]+)\0)?C([0-9A-Z]{5})\0M([^\0]+)\0")
ERROR = ord("E")


class Connection(asyncpg.Connection):
    """An asyncpg connection with the prepared insert of a single job, and the reason if the server has ended it."""

    enqueue_one: Any = None  # the prepared statement
    ended: str | None = None  # what the server said
    # Behind a transaction pooler whose role has another isolation level or does not wait for the disk: a statement that
    # each of our transactions begins with, and for which a single statement needs a transaction.
    guard = ""
    leaving = False  # its server takes no writes any more: it is closed when its user gives it back

    def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        transport.set_protocol(_Watch(self, protocol))

    def is_unfinished(self) -> bool:
        """Whether a transaction is open or may be. After a BEGIN that failed, or was cancelled before its reply came,
        asyncpg would make the next transaction a savepoint of that one, and nothing would commit it."""
        protocol: Any = self._protocol  # type: ignore[attr-defined]
        return self._top_xact is not None or protocol._is_cancelling() or protocol.is_in_transaction()  # type: ignore[attr-defined]


class _Watch(asyncio.Protocol):
    """Reads what the server sends, for the message with which it ends the connection. asyncpg drops a message that
    comes between two statements, and fails the next one with `cannot switch to state …; another operation is in
    progress`."""

    def __init__(self, connection: Connection, inner: asyncio.Protocol) -> None:
        self._connection, self._inner, self._last = connection, inner, b""
        self.pause_writing, self.resume_writing = inner.pause_writing, inner.resume_writing  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        self._last = data
        self._inner.data_received(data)
        if data[0] == ERROR and (said := last_words(data)):
            self._connection.ended = said
            self._connection.terminate()  # the server no longer reads from it: no caller must use it

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.ended = self._connection.ended or last_words(self._last)
        self._inner.connection_lost(error)


def last_words(data: bytes) -> str | None:
    """The message with which the server says that it ends this connection, if there is one."""
    for severity, name, code, message in LAST_WORDS.findall(data):
        # An immediate shutdown and the crash of another backend are told as warnings.
        if (name or severity) in (b"FATAL", b"PANIC") or code.startswith(b"57P"):
            return str(message, "utf-8", "replace")
    return None


class Connector:
    """Opens connections of one kind; `settings` are made on top of those that all have."""

    def __init__(self, url: str, options: StoreOptions, settings: dict[str, str]) -> None:
        self._url, self._options = url, options
        self._settings = SETTINGS | settings
        self._pooled = options.pooler == "transaction"
        self._told = False  # that a role behind a transaction pooler has settings that cost round trips
        self._is_session_mode = False  # a pooler in between that was found to be in session mode
        self.place = place(url)

    async def connect(self, timeout: float) -> Connection:
        """A connection with its settings made."""
        connection = await self._open(timeout)
        try:
            # Through a transaction pooler nothing is set: its backends serve other programs, too.
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
        # Of several hosts, the one that takes writes: the first may be a standby since a failover.
        if has_several_hosts(self._url) and "target_session_attrs" not in self._url and TARGET not in os.environ:
            options["target_session_attrs"] = "read-write"
        return await dial(self._url, **options)

    async def _set(self, connection: Connection) -> None:
        version = connection.get_server_version().major
        known = {name: value for name, value in self._settings.items() if version >= NEWER.get(name, 0)}
        rows = ", ".join([SYNCED, *(f"('{name}', '{value}')" for name, value in known.items())])
        settings = f"SELECT set_config(name, value, false) FROM (VALUES {rows}) AS setting (name, value)"
        if connection.is_closed():  # asyncpg would raise AttributeError, which is not a broken connection to anybody
            raise asyncpg.InterfaceError("the server closed the connection as soon as it was opened")
        # If the process id of the start-up differs from the backend's, a pooler is in between.
        pid = connection.get_server_pid()
        if await connection.execute(f"{settings} WHERE pg_backend_pid() = {pid}") == "SELECT 0":
            await self._check_session_mode(connection)
            await connection.execute(settings)

    async def _guard(self, connection: Connection) -> str:
        """What our transactions begin with, if the role's own settings would change what we promise."""
        ((strict, unsynced),) = await connection.fetch(f"SELECT {STRICT}, {UNSYNCED}")
        if (strict or unsynced) and not self._told:
            self._told = True
            name = "default_transaction_isolation" if strict else "synchronous_commit"
            log.warning(
                "the role's %s is not the server's default: behind the pooler at %s each statement of Rowlock therefore"
                " takes three round trips; ALTER ROLE … RESET %s makes it one",
                name,
                self.place,
                name,
            )
        if unsynced:
            return "SET LOCAL synchronous_commit = on"
        return "SET LOCAL jit = off" if strict else ""

    async def _check_session_mode(self, connection: Connection) -> None:
        """Refuse a transaction pooler: our settings would stay on backends that serve other programs. In session mode
        no backend serves two open connections."""
        if self._is_session_mode:
            return
        try:
            second = await self._open(PROBE_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return  # no second connection is free; the next connection checks again
        try:
            # In session mode our backend never changes. Asked several times, because other clients use the pooler, too.
            ours, theirs = set(), set()
            for _ in range(PROBES):
                ours.add(await _backend(connection))
                theirs.add(await _backend(second))
        except TimeoutError:
            return  # as many connections as the pooler has backends: they are not shared
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
    """`asyncpg.connect`, without pieces of the password in the error for a URL that cannot be read."""
    # Not cancelled in the middle: asyncpg would leave a future with an exception that nobody reads, and asyncio would
    # print it. A connection that nobody waits for any more is dropped.
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
    """Whether a database URL names several servers, before its path or as parameter."""
    return "," in place(url) or re.search("[?&]host=[^&]*(,|%2C)", url) is not None


def place(url: str) -> str:
    """Host and port of a database URL, for messages: neither user nor password."""
    address = redact(url).partition("://")[2].rpartition("@")[2]
    return re.split("[/?]", address)[0] or "the local socket"
