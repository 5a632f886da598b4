"""PostgreSQL through asyncpg: connections without session state, a listener, and errors in our own words."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import asyncpg

from rowlock.core.errors import RowlockError, StoreError, StoreUnavailable, TooSlow
from rowlock.store import migrate
from rowlock.store.engines.connections import Connections, call_off
from rowlock.store.engines.connector import Connector, place
from rowlock.store.engines.dialects import POSTGRES
from rowlock.store.engines.engine import StoreOptions, Wakeups, redact
from rowlock.store.engines.listener import Listener
from rowlock.store.engines.operation import Call, Operation, Row, Steps, drive_awaiting, operation
from rowlock.store.engines.outage import outage_of
from rowlock.store.engines.postgres_errors import TROUBLE, translate
from rowlock.store.engines.postgres_session import PostgresSession
from rowlock.store.engines.queries import bind, load
from rowlock.store.engines.rows import UserRow, row_maker
from rowlock.store.engines.session import Block
from rowlock.store.engines.wakeups import NoWakeups

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

RETRY_CODES = {"40001", "40P01"}  # serialization failure, deadlock: the transaction is undone, run it again
# A worker that polled an empty queue has cached plans made for an empty table (sequential scan and sort); then a
# million jobs arrive and each claim reads them all, until the next autoanalyze. So the hot statements, each of which
# has its index, run on connections where the other ways are switched off, and all others are planned anew each time.
# Behind a pooler nothing is cached, so nothing need be set.
HOT = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off"}
OTHER = {"plan_cache_mode": "force_custom_plan"}
CANCELED = "57014"
SESSION_CONNECTIONS = 20  # for users' transactions, beside one for each slot of a worker
ANSWER_SECONDS = 5.0


class PostgresStore:
    """Connections to one PostgreSQL database."""

    engine = "postgres"
    dialect = POSTGRES

    def __init__(self, url: str, options: StoreOptions) -> None:
        self._url, self._options = url, options
        # Three kinds, none opened until used: `hot`, `other`, and `session` for users' transactions.
        sessions = options.session_connections or SESSION_CONNECTIONS
        sizes = {"hot": options.connections, "other": options.connections, "session": sessions}
        limit = {} if options.read_seconds is None else {"statement_timeout": str(int(options.read_seconds * 1000))}
        plans = {"hot": HOT | limit, "other": OTHER | limit, "session": dict[str, str]()}
        self._connections = {
            kind: Connections(Connector(url, options, plans[kind]), size) for kind, size in sizes.items()
        }
        self._queries = load("postgres")
        self.clock, self.writers = options.clock, options.connections
        self._pooled = options.pooler == "transaction"
        self._place, self.outage = place(url), outage_of(url)
        self.migrated: list[str] = []

    @classmethod
    async def open(cls, url: str, options: StoreOptions) -> PostgresStore:
        """Connect, migrate if asked to, and check the schema."""
        store = cls(url, options)
        try:
            if options.migrate:
                store.migrated = await store._migrate()
            await store._check()
        except BaseException as error:
            await store.close()
            if isinstance(error, TROUBLE):
                raise translate(error, f"cannot open {redact(url)}", store._place) from error
            raise
        return store

    async def _migrate(self) -> list[str]:
        """Apply the missing migrations and return their names. Safe when many processes do it at once."""
        names = []
        async with self._connections["other"].one() as connection:
            while some := await self._migrate_some(connection):
                names += some
        return names

    async def _migrate_some(self, connection: Any) -> list[str]:
        """Apply the next migration, or all of them to a new database. In one that is in use each has its own
        transaction: the locks of one must not be held through all that follow."""
        async with connection.transaction():
            # CREATE SCHEMA IF NOT EXISTS still collides when two run it at once, so the lock comes first.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'))")
            await connection.execute(migrate.bookkeeping("postgres"))
            applied = await migrate.applied_in_postgres(connection)
            pending = list(migrate.pending("postgres", applied))
            now = pending[:1] if applied else pending
            for migration in now:
                await connection.execute(
                    "INSERT INTO rowlock.migrations (number, name, breaking) VALUES ($1, $2, $3)",
                    migration.number,
                    migration.name,
                    migration.breaking,
                )
                await connection.execute(migration.sql)
            return [f"{migration.number:04d}_{migration.name}" for migration in now]

    async def _check(self) -> None:
        """Refuse a schema that this code cannot use."""
        async with self._connections["other"].one() as connection:
            migrate.check("postgres", await migrate.applied_in_postgres(connection), redact(self._url))

    async def describe(self) -> dict[str, str]:
        """What `doctor` prints about this database."""
        async with self._connections["other"].one() as connection:
            version = await connection.fetchval("SHOW server_version")
        return {
            "engine": "PostgreSQL",
            "version": version,
            "url": redact(self._url),
            "pooler": self._options.pooler,
        }

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction; undone ones are run again, unreachable databases are tried again
        where a repeat is harmless."""
        repeats, patience = self._options.repeats, self._options.command_timeout
        for attempt in range(1, repeats + 1):
            connections = self._connections["hot" if op.hot else "other"]
            try:
                connection = await connections.take(min(10.0, patience))
            except TROUBLE as error:
                failure, again = translate(error, op.name, self._place), True
            else:
                try:
                    if op.single:
                        answer = await self.drive(connection, op)
                    else:
                        answer = await _in_transaction(connection, partial(self.drive, connection, op))
                    if self.outage.began is not None:
                        self.outage.worked()
                    return answer
                except TROUBLE as error:
                    failure = self._too_slow(error, op) or translate(error, op.name, self._place, connection)
                    undone = getattr(error, "sqlstate", None) in RETRY_CODES
                    again = undone or (op.repeatable and isinstance(failure, StoreUnavailable))
                    if isinstance(failure, StoreUnavailable):
                        failure.may_have_happened = True
                    if isinstance(error, TimeoutError):
                        await call_off(connection, patience / 10)
                    elif not isinstance(error, asyncpg.PostgresError):
                        connection.terminate()  # its state is unknown: no other caller must get it
                except RowlockError:
                    raise  # the operation's own answer: its transaction was rolled back
                except BaseException:
                    await call_off(connection, patience / 10)  # cut off in the middle
                    raise
                finally:
                    connections.give_back(connection)
            if not again or attempt == repeats:
                raise failure
            await asyncio.sleep(random.uniform(0.3, 1.0) * 0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def _too_slow(self, error: BaseException, op: Operation[Any]) -> TooSlow | None:
        """Where reads may not take long: the error of one that did."""
        limit = self._options.read_seconds
        late = isinstance(error, TimeoutError) or getattr(error, "sqlstate", None) == CANCELED
        return TooSlow(f"{op.name}: it took longer than {limit:g} s") if limit and op.read and late else None

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """The user's own query, in a transaction that may not write."""
        connection = await self._take_session("fetch")
        query = partial(connection.fetch, sql, *args, timeout=self._options.statement_seconds)
        try:
            return await _in_transaction(connection, query, readonly=True)
        except TROUBLE as error:
            raise await self.users_failure(error, "fetch", connection) from error
        except RowlockError:
            raise
        except BaseException:
            await call_off(connection, self._options.command_timeout / 10)
            raise
        finally:
            self._connections["session"].give_back(connection)

    async def execute(self, sql: str) -> None:
        """One statement of the store's own, outside of any transaction."""
        connection = None
        try:
            async with self._connections["other"].one() as connection:
                await connection.execute(sql)
        except TROUBLE as error:
            raise translate(error, "execute", self._place, connection) from error

    def drive(self, connection: Any, op: Operation[T]) -> Coroutine[Any, Any, T]:
        """Run an operation on a connection that the caller has taken."""
        return drive_awaiting(op, POSTGRES, partial(self._execute, connection))

    async def _execute(self, connection: Any, call: Call) -> list[Row]:
        query = self._queries[call.name]
        values = bind(query, call.params, self.clock)
        if call.name != "enqueue_one" or self._pooled:
            rows = await connection.fetch(query.sql, *values)
        else:
            # To find a prepared statement by its text takes asyncpg 13 µs: much of what a single enqueue may cost.
            if connection.enqueue_one is None:
                connection.enqueue_one = await connection.prepare(query.sql)
            rows = await connection.enqueue_one.fetch(*values)
        if not rows or query.is_record:
            return rows  # type: ignore[no-any-return]
        # A column of asyncpg's own rows by its name takes 1 µs: for a page of 5,000 rows, most of its time.
        return list(map(row_maker(tuple(rows[0].keys())), rows))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Block]:
        """A transaction for the user's own SQL and operations together. Errors of the database are put into our own
        words; those that the user's code raises in the block are left as they are."""
        session = PostgresSession(self, await self._take_session("transaction"), self._options)
        try:
            await session.begin()
            block = Block(session)
            try:
                yield block
                await block.finish()
                if session.failed is not None:
                    raise session.undone()
            except BaseException:
                block.close()
                await session.roll_back()
                raise
            await session.commit()
            if session.enqueued:
                # Each enqueue notified if a worker was idle when it ran; workers that became idle since are woken here.
                with contextlib.suppress(StoreError):
                    await self.run(_notify_idle())
        finally:
            if not session.over:
                session.connection.terminate()  # cut off in the middle of a statement: no other caller must get it
            self._connections["session"].give_back(session.connection)

    async def _take_session(self, doing: str) -> Any:
        connections, patience = self._connections["session"], self._options.session_patience
        try:
            return await connections.take(patience)
        except TROUBLE as error:
            if isinstance(error, TimeoutError) and connections.crowded:
                raise StoreUnavailable(
                    f"{doing}: all {connections.size} connections for transactions were in use for {patience:g} s;"
                    " the setting transactions.connections says how many a process may have"
                ) from error
            raise translate(error, doing, self._place) from error

    async def users_failure(self, error: BaseException, doing: str, connection: Any) -> StoreError:
        """What a statement of the user failed of. One that takes too long does so again, however often it is tried."""
        if getattr(error, "sqlstate", None) == CANCELED:
            return StoreError(f"{doing}: {error}")
        if isinstance(error, TimeoutError) and await self._answers():
            limit = self._options.statement_seconds
            return StoreError(
                f"{doing}: a statement took longer than {limit:g} s and was cancelled;"
                " the setting transactions.statement_seconds says how long one may take"
            )
        return await self.failure(error, doing, connection)

    async def failure(self, error: BaseException, doing: str, connection: Any) -> StoreError:
        """What a statement of ours failed of."""
        return translate(error, doing, self._place, connection)

    async def _answers(self) -> bool:
        """Whether the database can be reached now."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.execute("SELECT 1")
        except (TimeoutError, StoreError):
            return False
        return True

    def expect_transactions(self, number: int) -> None:
        """Allow `number` users' transactions at the same time, and a few more, unless `session_connections` is set."""
        if self._options.session_connections is None:
            self._connections["session"].widen(SESSION_CONNECTIONS + number)

    async def listen(self, on_wakeup: Callable[[str], None]) -> Wakeups:
        """Call `on_wakeup` for each wake-up. Behind a transaction pooler without a direct URL there are none."""
        if self._options.pooler == "transaction" and not self._options.direct_url:
            log.info("no wake-ups through a transaction pooler: polling only (set direct_url to have both)")
            return NoWakeups()
        direct = self._options.direct_url
        options = replace(self._options, pooler="session") if direct else self._options
        listener = Listener(Connector(direct or self._url, options, {}), self.outage, on_wakeup)
        listener.start()
        return listener

    async def close(self) -> None:
        """Close all connections; never hangs on a dead server."""
        await asyncio.gather(*(connections.close() for connections in self._connections.values()))

    def abandon(self) -> None:
        """Close without an event loop: the one that this store belonged to has ended."""
        for connections in self._connections.values():
            connections.abandon()


@operation(single=True, repeatable=True)
def _notify_idle() -> Steps[None]:
    yield Call("notify_idle")


async def _in_transaction(connection: Any, work: Callable[[], Awaitable[T]], readonly: bool = False) -> T:
    """Not an `async with` block: its ROLLBACK on a connection that has just broken would fail, too, and hide the
    reason; and after a cancellation it would wait for a server that may never answer."""
    transaction = connection.transaction(readonly=readonly)
    await transaction.start()
    try:
        answer = await work()
    except (RowlockError, asyncpg.PostgresError, asyncpg.InterfaceError):
        with contextlib.suppress(*TROUBLE):  # a connection left in its transaction is thrown away
            await transaction.rollback()
        raise
    await transaction.commit()
    return answer
