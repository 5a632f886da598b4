"""Translate the errors of PostgreSQL and its driver into ours, with a message that explains what happened.

When a connection breaks, asyncpg raises a chain of errors, and the last one is often about the driver's own state
(`cannot switch to state 12`, `the underlying connection is closed`). The real reason is the server's last message
(`Connection.ended`), or if there is none, the first error of the chain.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import asyncpg

from rowlock.core.errors import SchemaError, StorageFull, StoreError, StoreUnavailable, TransactionConflict

# Raised for a broken or refused connection. InternalClientError: it broke in the middle of something.
TROUBLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# The driver's errors for a connection that it can't use any more; the cause is further up the chain.
BROKEN = (asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, asyncpg.InternalClientError)
BROKEN_BY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)

READ_ONLY = "25006"  # the server is a standby, or a primary that was fenced after a failover
# After these errors the statement may work later. `{place}` is host and port, `{message}` the server's own message.
ENDED = "the server at {place} ended the connection: {message}"
LATER = {
    **dict.fromkeys(("57P01", "57P02", "57P05", "25P03"), ENDED),
    "57P03": "the server at {place} does not accept connections: {message}",
    "53300": "the server at {place} has no connection left: {message}",
    READ_ONLY: "the server at {place} is read-only: {message}",
    "55P03": "another transaction held a lock for too long: {message}",
    "57014": "the statement took too long: {message}",
}
PASSING_CLASSES = ("08", "53", "58")  # connection, resources (memory, connections), the server's operating system
CANCELED = "57014"  # the statement took too long, or somebody cancelled it
SCHEMA_CODES = {"42P01", "3F000", "42703"}
DEPENDED_ON = "2BP01"  # on a view or function that a migration must drop; the message explains what to do
CONFLICT_CODES = {"40001", "40P01"}  # serialization failure, deadlock: rolled back, so the transaction can be repeated
FULL_CODES = {"53100"}
# A prepared statement is missing, or exists already: each transaction ran on another backend.
SWAPPED_CODES = {"26000", "42P05"}
SWAPPED = "behind a pooler in transaction mode, set `pooler: transaction` in the config or ROWLOCK_POOLER=transaction"


def translate(error: BaseException, doing: str, place: str = "the database", connection: Any = None) -> StoreError:
    """Our error for one of TROUBLE. `connection` is the connection that was in use, if any."""
    first = _first(error)
    code = getattr(first, "sqlstate", None) or ""
    if code in FULL_CODES:
        return StorageFull(f"{doing}: the database's disk is full: {first}")
    if code in CONFLICT_CODES:
        return TransactionConflict(f"{doing}: {first.args[0] if first.args else first}; run the transaction again")
    if code in SCHEMA_CODES:
        return SchemaError(f"{doing}: {first}; run: rowlock migrate --database URL")
    if code == DEPENDED_ON:
        return SchemaError(f"{doing}: {first}")
    if code in SWAPPED_CODES:
        return StoreError(f"{doing}: {first.args[0]}; {SWAPPED}")
    if is_outage(first, connection):
        return StoreUnavailable(f"{doing}: {reason(error, place, connection)}")
    return StoreError(f"{doing}: {first}")


def is_outage(error: BaseException, connection: Any = None) -> bool:
    """Whether the request may work later, on another connection."""
    code = getattr(error, "sqlstate", None) or ""
    if code in LATER or code.startswith(PASSING_CLASSES):
        return True
    # asyncpg raises ValueError for a parameter that it can't send: repeating the request would never help.
    if isinstance(error, (asyncpg.PostgresError, ValueError)):
        return False
    # An InterfaceError on a working connection is a mistake in the request, such as one parameter too many.
    return not isinstance(error, asyncpg.InterfaceError) or connection is None or connection.is_closed()


def reason(error: BaseException, place: str, connection: Any = None) -> str:
    """What happened, for people to read, without the driver's internals and without secrets."""
    message = getattr(connection, "ended", None)
    if message is not None:
        return ENDED.format(place=place, message=message)
    first = _first(error)
    code = getattr(first, "sqlstate", None) or ""
    if code in LATER:
        return LATER[code].format(place=place, message=first)
    if isinstance(first, TimeoutError) and not getattr(first, "errno", None):
        return str(first) or f"{place} did not answer in time"
    if isinstance(first, socket.gaierror):
        return f"the host name of {place} cannot be resolved: {first.strerror}"
    if isinstance(first, ConnectionRefusedError):
        return f"no server accepts connections at {place}: connection refused"
    if isinstance(first, OSError):
        return f"the connection to {place} failed: {os.strerror(first.errno) if first.errno else first}"
    if isinstance(first, BROKEN):
        return f"the connection to {place} broke"
    return f"the server at {place} refused: {first}"


def _first(error: BaseException) -> BaseException:
    """The first error of the chain. Later ones only report that the connection is in a bad state."""
    while isinstance(error, BROKEN):
        # Not every __context__ belongs to the chain: the caller may be handling another error.
        before = error.__cause__ or (error.__context__ if isinstance(error.__context__, BROKEN_BY) else None)
        if before is None or not isinstance(before, TROUBLE):
            break
        error = before
    return error
