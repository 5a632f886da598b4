"""PostgreSQL through asyncpg: the store, its kinds of connections, and its retries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import asyncpg

from rowlock.core.errors import ConfigError, RowlockError, StoreUnavailable, TooSlow, TransactionConflict
from rowlock.store.engine import migrate
from rowlock.store.engine.dialects import POSTGRES
from rowlock.store.engine.operation import Call, Operation, Row, UserRow, drive_awaiting, row_maker
from rowlock.store.engine.outage import outage_of
from rowlock.store.engine.postgres.connections import Connections, cancel_and_close
from rowlock.store.engine.postgres.connector import Connector, place
from rowlock.store.engine.postgres.errors import BROKEN, CANCELED, READ_ONLY, TROUBLE, translate
from rowlock.store.engine.postgres.listener import PostgresListener
from rowlock.store.engine.postgres.transactions import UserTransactions, in_transaction
from rowlock.store.engine.sqlite.wakeups import NoWakeups
from rowlock.store.engine.statements import bind, load
from rowlock.store.engine.store import StoreOptions, Wakeups, redact
from rowlock.store.engine.transactions import Block

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

# A worker that has polled an empty queue has cached plans for an empty table (sequential scan and sort). If a million
# jobs then arrive, each claim reads them all until the next autoanalyze. So the hot statements, each of which has its
# index, run on connections where other kinds of scans and joins are switched off. Each is planned only once there:
# PostgreSQL would otherwise replan statements that look cheap, and planning takes longer than running them. All other
# statements are planned anew each time. Behind a transaction pooler nothing is cached, so there is nothing to set.
HOT = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
OTHER = {"plan_cache_mode": "force_custom_plan"}
# A new table, because it needs new disk pages, while an old table may have room; temporary, to need no rights on ours.
TRIAL = """CREATE TEMPORARY TABLE rowlock_trial ON COMMIT DROP AS
SELECT repeat('x', 1000) AS filler FROM generate_series(1, 1000)"""
SESSION_CONNECTIONS = 20  # for users' transactions, in addition to one for each slot of a worker


class PostgresStore:
    """Connections to one PostgreSQL database."""

    engine = "postgres"
    dialect = POSTGRES

    def __init__(self, url: str, options: StoreOptions) -> None:
        self._url, self._options = url, options
        # Three kinds of connections, opened on demand: `hot`, `other`, and `session` for users' transactions.
        sessions = options.session_connections or SESSION_CONNECTIONS
        sizes = {"hot": options.connections, "other": options.connections, "session": sessions}
        # Our statements have our own time limits, because those of the role were made for people.
        seconds = 0.0 if options.read_seconds is None else options.read_seconds
        limit = {"statement_timeout": str(int(seconds * 1000)), "transaction_timeout": "0"}
        plans = {"hot": HOT | limit, "other": OTHER | limit, "session": dict[str, str]()}
        self._connections = {
            kind: Connections(Connector(url, options, plans[kind]), size) for kind, size in sizes.items()
        }
        self._queries = load("postgres")
        self.clock, self.writers = options.clock, options.connections
        self._pooled = options.pooler == "transaction"
        self.place, self.outage = place(url), outage_of(url)
        self._users = UserTransactions(self, self._connections["session"], options)
        self.migrated: list[str] = []

    @classmethod
    async def open(cls, url: str, options: StoreOptions) -> PostgresStore:
        """Connect, migrate if asked to, and check the schema."""
        store = cls(url, options)
        try:
            try:
                await store._prepare()
            except BROKEN:  # the server may be restarting: a second connection shows whether it is back
                await store._prepare()
        except BaseException as error:
            await store.close()
            if isinstance(error, TROUBLE):
                raise translate(error, f"cannot open {redact(url)}", store.place) from error
            raise
        return store

    async def _prepare(self) -> None:
        async with self._connections["other"].one() as connection:
            await _need_utf8(connection, self._url)
            if self._options.migrate:
                self.migrated += await migrate.apply_to_postgres(connection, redact(self._url))
            migrate.check(POSTGRES, await migrate.applied_in_postgres(connection), redact(self._url))

    async def describe(self) -> dict[str, str]:
        """The facts that `doctor` prints about this database."""
        async with self._connections["other"].one() as connection:
            version = await connection.fetchval("SHOW server_version")
        return {
            "engine": "PostgreSQL",
            "version": version,
            "url": redact(self._url),
            "pooler": self._options.pooler,
        }

    async def try_write(self) -> int | None:
        """Write 1 MB of new pages and roll it back. Returns None: the free space on the server's disk is unknown."""
        connection = None
        try:
            async with self._connections["other"].one() as connection:
                trial = connection.transaction()
                await trial.start()
                try:
                    await connection.execute(TRIAL)
                finally:
                    await trial.rollback()
        except TROUBLE as error:
            raise translate(error, "write", self.place, connection) from error
        return None

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction. Repeats it if it was rolled back, or if the database can't be reached
        and a repeat is harmless."""
        repeats, patience = self._options.repeats, self._options.command_timeout
        for attempt in range(1, repeats + 1):
            connections = self._connections["hot" if op.hot else "other"]
            try:
                connection = await connections.take(min(10.0, patience))
            except TROUBLE as error:
                failure, again = translate(error, op.name, self.place), True
            else:
                try:
                    if op.single and not connection.guard:
                        answer = await self.drive(connection, op)
                    else:
                        answer = await in_transaction(connection, partial(self.drive, connection, op))
                    if self.outage.began is not None:
                        self.outage.worked()
                    return answer
                except TROUBLE as error:
                    failure = self._too_slow(error, op) or translate(error, op.name, self.place, connection)
                    read_only = getattr(error, "sqlstate", None) == READ_ONLY
                    undone = read_only or isinstance(failure, TransactionConflict)
                    again = undone or (op.repeatable and isinstance(failure, StoreUnavailable))
                    if isinstance(failure, StoreUnavailable) and not undone:
                        failure.may_have_happened = True
                    if read_only:
                        self._retire_connections()
                    if isinstance(error, TimeoutError):
                        await cancel_and_close(connection, patience / 10)
                    elif not isinstance(error, asyncpg.PostgresError):
                        connection.terminate()  # its state is unknown, so no other caller may get it
                except RowlockError:
                    raise  # raised by the operation itself, and its transaction was rolled back
                except BaseException:
                    await cancel_and_close(connection, patience / 10)  # interrupted in the middle of a statement
                    raise
                finally:
                    connections.give_back(connection)
            if not again or attempt == repeats:
                raise failure
            await asyncio.sleep(random.uniform(0.3, 1.0) * 0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def _retire_connections(self) -> None:
        """Use new connections from now on. After a failover the address leads to another server, but open connections
        stay with the old one, which may go on answering reads forever."""
        for connections in self._connections.values():
            connections.retire()

    def _too_slow(self, error: BaseException, op: Operation[Any]) -> TooSlow | None:
        """The error for a read that exceeded `read_seconds`; None if there is no limit, or for other errors."""
        limit = self._options.read_seconds
        late = isinstance(error, TimeoutError) or getattr(error, "sqlstate", None) == CANCELED
        return TooSlow(f"{op.name} took longer than {limit:g} s") if limit and op.read and late else None

    async def execute(self, sql: str) -> None:
        """Run one of Rowlock's own statements, outside of any transaction."""
        connection = None
        try:
            async with self._connections["other"].one() as connection:
                await connection.execute(sql)
        except TROUBLE as error:
            raise translate(error, "execute", self.place, connection) from error

    def transaction(self) -> AbstractAsyncContextManager[Block]:
        """A transaction for the user's own SQL and operations together."""
        return self._users.transaction()

    def expect_transactions(self, number: int, seconds: float) -> None:
        """Allow `number` concurrent users' transactions, and a few more, unless `session_connections` is set."""
        if self._options.session_connections is None:
            self._connections["session"].widen(SESSION_CONNECTIONS + number)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """Run the user's own query in a read-only transaction."""
        return await self._users.fetch(sql, *args)

    def drive(self, connection: Any, op: Operation[T]) -> Coroutine[Any, Any, T]:
        """Run an operation on a connection that the caller has taken."""
        return drive_awaiting(op, POSTGRES, partial(self._execute, connection))

    async def _execute(self, connection: Any, call: Call) -> list[Row]:
        query = self._queries[call.name]
        values = bind(query, call.params, self.clock)
        if call.name != "enqueue_one" or self._pooled:
            rows = await connection.fetch(query.sql, *values)
        else:
            # asyncpg needs 13 µs to find a prepared statement by its text, a large part of the time of one enqueue.
            if connection.enqueue_one is None:
                connection.enqueue_one = await connection.prepare(query.sql)
            rows = await connection.enqueue_one.fetch(*values)
        if not rows or query.is_record:
            return rows  # type: ignore[no-any-return]
        # Access by column name takes 1 µs on asyncpg's own rows, which would dominate the time of a 5,000-row page.
        return list(map(row_maker(tuple(rows[0].keys())), rows))

    async def listen(self, on_wakeup: Callable[[str], None]) -> Wakeups:
        """Call `on_wakeup` for each wake-up. There are none behind a transaction pooler without a direct URL."""
        if self._options.pooler == "transaction" and not self._options.direct_url:
            log.info("a transaction pooler passes on no wake-ups, so workers only poll; set direct_url to get wake-ups")
            return NoWakeups()
        direct = self._options.direct_url
        options = replace(self._options, pooler="session") if direct else self._options
        listener = PostgresListener(Connector(direct or self._url, options, {}), self.outage, on_wakeup)
        listener.start()
        return listener

    async def close(self) -> None:
        """Close all connections. A dead server can't make it hang."""
        await asyncio.gather(*(connections.close() for connections in self._connections.values()))

    def abandon(self) -> None:
        """Close without an event loop, after this store's event loop has ended."""
        for connections in self._connections.values():
            connections.abandon()


async def _need_utf8(connection: Any, url: str) -> None:
    """Refuse a database that can't store every text: some jobs would fail because of the letters in their arguments."""
    encoding = await connection.fetchval("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise ConfigError(
            f"{redact(url)} has the encoding {encoding}, but Rowlock needs UTF8;"
            " use a new database: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
