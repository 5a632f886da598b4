"""What PostgreSQL and its driver raise, in our own words: which of our errors it is, and what happened.

A connection that breaks makes asyncpg raise a chain of errors, and the last one often speaks of the driver's own state
(`cannot switch to state 12`, `the underlying connection is closed`). The reason is what the server said when it ended
the connection (`Connection.ended`), else the first error of the chain.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import asyncpg

from rowlock.core.errors import SchemaError, StorageFull, StoreError, StoreUnavailable, TransactionConflict

# What a broken or refused connection raises. InternalClientError: one that ended in the middle of something.
TROUBLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# The driver about a connection that it cannot use any more; the reason is elsewhere.
BROKEN = (asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, asyncpg.InternalClientError)
BROKEN_BY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)

READ_ONLY = "25006"  # the server is a standby, or a primary that was fenced after a failover
# After these the same statement may work later. `{place}` is host and port, `{said}` the server's own message.
ENDED = "the server at {place} ended the connection: {said}"
LATER = {
    **dict.fromkeys(("57P01", "57P02", "57P05", "25P03"), ENDED),
    "57P03": "the server at {place} does not accept connections: {said}",
    "53300": "the server at {place} has no connection left: {said}",
    READ_ONLY: "the server at {place} is read-only: {said}",
    "55P03": "another transaction held a lock for too long: {said}",
    "57014": "the statement took too long: {said}",
}
PASSING_CLASSES = ("08", "53", "58")  # connection, resources (memory, connections), the system around the server
CANCELED = "57014"  # a statement that took too long, or that somebody cancelled
SCHEMA_CODES = {"42P01", "3F000", "42703"}
DEPENDED_ON = "2BP01"  # a view or function that a migration must drop; its message has what to do
CONFLICT_CODES = {"40001", "40P01"}  # serialization failure, deadlock: the transaction is undone, run it again
FULL_CODES = {"53100"}
# A prepared statement that is not there, or there already: each transaction ran on another backend.
SWAPPED_CODES = {"26000", "42P05"}
SWAPPED = "behind a pooler in transaction mode, set `pooler: transaction` in the config or ROWLOCK_POOLER=transaction"


def translate(error: BaseException, doing: str, place: str = "the database", connection: Any = None) -> StoreError:
    """Our error for one of TROUBLE. `connection` is the one that was in use, if there was one."""
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
    """Whether the same request may work later, on another connection."""
    code = getattr(error, "sqlstate", None) or ""
    if code in LATER or code.startswith(PASSING_CLASSES):
        return True
    # A ValueError is asyncpg's word for a parameter that it cannot send: trying again would never end.
    if isinstance(error, (asyncpg.PostgresError, ValueError)):
        return False
    # An InterfaceError on a connection that works is a mistake in the request, such as a parameter too many.
    return not isinstance(error, asyncpg.InterfaceError) or connection is None or connection.is_closed()


def reason(error: BaseException, place: str, connection: Any = None) -> str:
    """What happened, for people; no driver's internals and no secrets."""
    said = getattr(connection, "ended", None)
    if said is not None:
        return ENDED.format(place=place, said=said)
    first = _first(error)
    code = getattr(first, "sqlstate", None) or ""
    if code in LATER:
        return LATER[code].format(place=place, said=first)
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
    """The first error of the chain: later ones only say that the connection is in a bad state."""
    while isinstance(error, BROKEN):
        # Not every context belongs to the chain: the caller may be handling an error of its own.
        before = error.__cause__ or (error.__context__ if isinstance(error.__context__, BROKEN_BY) else None)
        if before is None or not isinstance(before, TROUBLE):
            break
        error = before
    return error
