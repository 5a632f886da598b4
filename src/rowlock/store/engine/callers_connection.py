"""Operations on the caller's own connection: part of the caller's transaction, committed by the caller.

Database libraries are recognized by the names of their classes and never imported, so an application loads only those
that it uses. Two rules make operations independent of how the caller has set up the connection. First, ids and JSON are
sent as text and cast by the server, which bypasses the caller's codecs (a `json` codec, common with asyncpg, would
encode JSON twice). Second, on a connection in autocommit, an operation of several statements gets its own transaction:
half of one would leave a reserved id without its job.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from rowlock.core.errors import InvalidArguments, KeyConflict, SchemaError
from rowlock.core.times import FakeClock
from rowlock.store.engine.dialects import POSTGRES
from rowlock.store.engine.operation import Call, Operation, Row, drive, drive_awaiting, row_maker
from rowlock.store.engine.statements import Query, bind, load

T = TypeVar("T")
Fetched = tuple[tuple[str, ...], Iterable[Iterable[Any]]]  # the names of the columns, and the rows
Execute = Callable[[str, list[Any]], Fetched]
AsyncExecute = Callable[[str, list[Any]], Awaitable[Fetched]]
NOTHING: Fetched = ((), ())

# The column types of single parameters that are sent as text; batch parameters have casts in the SQL.
CASTS = {"job_id": "uuid", "token": "uuid", "batch_id": "uuid", "parent_id": "uuid"} | dict.fromkeys(
    ("args", "tags", "backoff", "on_success", "on_dead"), "json"
)
SQLITE_LIBRARIES = {"sqlite3", "pysqlite3", "apsw", "aiosqlite"}
SCHEMA_CODES = {"42P01", "3F000", "42703"}  # no such table, schema, column
SERIALIZATION = "40001"
IDLE = 0  # psycopg's TransactionStatus of a connection without a transaction
LEVEL = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"  # for our own transaction on a connection in autocommit
KEYED = {"enqueue_rows", "enqueue_once"}
KEY_CONFLICT = (
    "a key or id was taken, or the batch changed, by a transaction that this one (REPEATABLE READ or SERIALIZABLE)"
    " cannot see; roll back and run it again"
)

_PLACE = re.compile(r"\$(\d+)")


def is_async(connection: Any) -> bool:
    """Whether this connection must be awaited."""
    return _found(ASYNC, connection) is not None


class OnConnection(NamedTuple):
    """The caller's connection as a place where operations run."""

    connection: Any
    clock: FakeClock | None

    async def run(self, op: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction."""
        return await run_on(self.connection, op, self.clock)


async def run_on(connection: Any, op: Operation[T], clock: FakeClock | None = None) -> T:
    """Run an operation on any accepted connection. A sync one blocks the event loop, like all SQL on it."""
    run = _found(ASYNC, connection)
    if run is None:
        return run_on_sync(connection, op, clock)
    with _schema_explained(op):
        return await run(connection, op, clock)  # type: ignore[no-any-return]


def run_on_sync(connection: Any, op: Operation[T], clock: FakeClock | None = None) -> T:
    """Run an operation on a sync connection; needs no event loop."""
    if is_async(connection):
        raise InvalidArguments(f"connection= is async ({_class_of(connection)}): await enqueue(…), not enqueue_sync(…)")
    joined = _found(SYNC, connection)
    if joined is None:
        raise _refusal(connection)

    with _schema_explained(op), joined(connection, op.single) as execute:
        # These wake-ups aren't sent: on PostgreSQL the statements themselves notify when the caller commits.
        return drive(op, POSTGRES, _OnConnection(execute, clock), wakes=[])


class _OnConnection(NamedTuple):
    """Executes the statements of an operation on the caller's connection."""

    run: Execute
    clock: FakeClock | None

    def execute(self, call: Call) -> list[Row]:
        return _rows(*self.run(*_statement(call, self.clock)))


# --- how each library executes


@asynccontextmanager
async def _asyncpg(connection: Any, single: bool) -> AsyncIterator[AsyncExecute]:
    async def execute(sql: str, values: list[Any]) -> Fetched:
        rows = await connection.fetch(sql, *values)
        return (tuple(rows[0].keys()), rows) if rows else NOTHING

    own = not single and not connection.is_in_transaction()
    async with connection.transaction(isolation="read_committed") if own else nullcontext():
        yield execute


# psycopg's raw cursor accepts $1. Creating it directly bypasses the caller's own cursor and row classes.
@asynccontextmanager
async def _psycopg_async(connection: Any, single: bool) -> AsyncIterator[AsyncExecute]:
    psycopg, tuple_row = importlib.import_module("psycopg"), importlib.import_module("psycopg.rows").tuple_row

    async def execute(sql: str, values: list[Any]) -> Fetched:
        await cursor.execute(sql, values, binary=True)
        return (_columns(cursor), await cursor.fetchall()) if cursor.description else NOTHING

    own = not single and connection.autocommit and connection.info.transaction_status == IDLE
    async with connection.transaction() if not single and connection.autocommit else nullcontext():
        async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
            if own:
                await cursor.execute(LEVEL)
            yield execute


@contextmanager
def _psycopg(connection: Any, single: bool) -> Iterator[Execute]:
    psycopg, tuple_row = importlib.import_module("psycopg"), importlib.import_module("psycopg.rows").tuple_row

    def execute(sql: str, values: list[Any]) -> Fetched:
        cursor.execute(sql, values, binary=True)
        return (_columns(cursor), cursor.fetchall()) if cursor.description else NOTHING

    own = not single and connection.autocommit and connection.info.transaction_status == IDLE
    with connection.transaction() if not single and connection.autocommit else nullcontext():
        with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
            if own:
                cursor.execute(LEVEL)
            yield execute


@contextmanager
def _sqlalchemy(connection: Any, single: bool) -> Iterator[Execute]:
    _need_postgres(connection, connection.dialect.name)
    if getattr(connection.connection.dbapi_connection, "autocommit", False) is True:
        raise InvalidArguments("connection= is in SQLAlchemy's AUTOCOMMIT: it has no transaction to join; leave it out")
    numbered = connection.dialect.paramstyle == "numeric_dollar"

    def execute(sql: str, values: list[Any]) -> Fetched:
        # Don't use the driver's connection directly: SQLAlchemy must know that its transaction has begun.
        statement, parameters = (sql, values) if numbered else _percent(sql, values)
        result = connection.exec_driver_sql(statement, tuple(parameters))
        return (tuple(result.keys()), result.all()) if result.returns_rows else NOTHING

    yield execute


def _sqlalchemy_session(session: Any, single: bool) -> AbstractContextManager[Execute]:
    # Check the engine first: an SQLite file must not even be opened.
    _need_postgres(session, session.get_bind().dialect.name)
    return _sqlalchemy(session.connection(), single)


@contextmanager
def _django(connection: Any, single: bool) -> Iterator[Execute]:
    _need_postgres(connection, connection.vendor)
    atomic = importlib.import_module("django.db.transaction").atomic

    def execute(sql: str, values: list[Any]) -> Fetched:
        cursor.execute(*_percent(sql, values))
        return (_columns(cursor), cursor.fetchall()) if cursor.description else NOTHING

    own = not single and connection.get_autocommit()
    with atomic(using=connection.alias) if own else nullcontext():
        with connection.cursor() as cursor:
            if own:
                cursor.execute(LEVEL)
            yield execute


def _awaiting(joined: Callable[[Any, bool], Any]) -> Callable[..., Awaitable[Any]]:
    """Make a function that runs an operation and awaits each statement."""

    async def run(connection: Any, op: Operation[T], clock: FakeClock | None) -> T:
        async def execute_call(call: Call) -> list[Row]:
            return _rows(*await execute(*_statement(call, clock)))

        async with joined(connection, op.single) as execute:
            return await drive_awaiting(op, POSTGRES, execute_call)

    return run


async def _sqlalchemy_async(connection: Any, op: Operation[T], clock: FakeClock | None) -> T:
    # SQLAlchemy's own bridge: its async classes wrap the sync ones, whose driver then waits in this event loop.
    return await connection.run_sync(run_on_sync, op, clock)  # type: ignore[no-any-return]


# Accepted classes, by (package, class). Pools, engines and cursors are not accepted.
SYNC: dict[tuple[str, str], Callable[[Any, bool], AbstractContextManager[Execute]]] = {
    ("psycopg", "Connection"): _psycopg,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("sqlalchemy", "Session"): _sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): lambda scoped, single: _sqlalchemy_session(scoped(), single),
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
}
ASYNC: dict[tuple[str, str], Callable[..., Awaitable[Any]]] = {
    ("asyncpg", "Connection"): _awaiting(_asyncpg),
    ("asyncpg", "PoolConnectionProxy"): _awaiting(_asyncpg),
    ("psycopg", "AsyncConnection"): _awaiting(_psycopg_async),
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async,
    ("sqlalchemy", "async_scoped_session"): lambda scoped, op, clock: _sqlalchemy_async(scoped(), op, clock),
}


def _found(table: dict[tuple[str, str], T], connection: Any) -> T | None:
    # Check both: the proxies of tracing tools show the wrapped class only as __class__.
    for cls in (*type(connection).__mro__, *connection.__class__.__mro__):
        if found := table.get((cls.__module__.partition(".")[0], cls.__name__)):
            return found
    return None


# --- statements, parameters and rows


def _statement(call: Call, clock: FakeClock | None) -> tuple[str, list[Any]]:
    """The SQL with $1, $2, … and its values."""
    query = load("postgres")[call.name]
    # psycopg sends tuples as composite values, lists as arrays.
    values = [list(value) if isinstance(value, tuple) else value for value in bind(query, call.params, clock)]
    return _as_text(query), values


@cache
def _as_text(query: Query) -> str:
    """The statement with casts for ids and JSON that are sent as text."""

    def cast(match: re.Match[str]) -> str:
        name, column = query.binds[int(match[1]) - 1]
        return f"{match[0]}::text::{CASTS[name]}" if column is None and name in CASTS else match[0]

    return _PLACE.sub(cast, query.sql).replace("::json[]", "::text[]::json[]")


def _percent(sql: str, values: list[Any]) -> tuple[str, list[Any]]:
    """The statement for drivers with %s, where a parameter that is used twice must be passed twice."""
    text, order = _percent_text(sql)
    return text, [values[n] for n in order]


@cache
def _percent_text(sql: str) -> tuple[str, tuple[int, ...]]:
    return _PLACE.sub("%s", sql.replace("%", "%%")), tuple(int(n) - 1 for n in _PLACE.findall(sql))


def _columns(cursor: Any) -> tuple[str, ...]:
    """The column names of a DB-API cursor."""
    return tuple(column[0] for column in cursor.description)


def _rows(columns: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> list[Row]:
    """Rows as our own connections return them, with ids and JSON as text."""
    make = row_maker(columns)
    return [make(map(_plain_value, row)) for row in rows]


def _plain_value(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return json.dumps(value) if isinstance(value, (dict, list)) else value


# --- errors


@contextmanager
def _schema_explained(op: Operation[Any]) -> Iterator[None]:
    """Explain a missing schema, and a key that the caller's snapshot is too old to see. Every other error stays the
    driver's, because the transaction is the caller's, whose code expects the driver's errors."""
    try:
        yield
    except Exception as error:
        # SQLAlchemy keeps the driver's error in `orig`, Django in `__cause__`; psycopg2 has `pgcode`.
        for cause in (error, getattr(error, "orig", None), error.__cause__):
            code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
            if code == SERIALIZATION and op.name in KEYED:
                raise KeyConflict(KEY_CONFLICT) from error
            if code in SCHEMA_CODES:
                reason = str(cause).partition("\n")[0]
                raise SchemaError(f"{op.name}: {reason}; run: rowlock migrate --database URL") from error
        raise


def _need_postgres(connection: Any, engine: str) -> None:
    if engine != "postgresql":
        raise _refusal(connection, engine)


def _refusal(connection: Any, engine: str | None = None) -> InvalidArguments:
    package = type(connection).__module__.partition(".")[0]
    engine = engine or getattr(getattr(connection, "dialect", None), "name", None)
    if engine == "sqlite" or package in SQLITE_LIBRARIES:
        return InvalidArguments(
            f"connection= cannot be on SQLite ({_class_of(connection)}): use `async with app.transaction()`,"
            " where your SQL and the job commit together (two SQLite libraries on one file in a process drop"
            " each other's locks)"
        )
    where = f" on {engine}" if engine and engine != "postgresql" else ""
    return InvalidArguments(
        f"connection= cannot be {_class_of(connection)}{where}: it takes a PostgreSQL connection of asyncpg,"
        " psycopg 3 (sync or async), SQLAlchemy (Session, Connection and their async kinds) or Django"
    )


def _class_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
