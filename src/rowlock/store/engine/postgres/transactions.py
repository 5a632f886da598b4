"""Users' transactions on PostgreSQL: a connection for each, its statements and limits, and what its errors say."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from rowlock.core.errors import (
    KeyConflict,
    RowlockError,
    StorageFull,
    StoreError,
    StoreUnavailable,
    TransactionConflict,
    TransactionTooLong,
)
from rowlock.store.engine.callers_connection import KEY_CONFLICT, KEYED, SERIALIZATION
from rowlock.store.engine.operation import Call, Operation, Steps, UserRow, operation
from rowlock.store.engine.postgres.connections import Connections, call_off
from rowlock.store.engine.postgres.errors import CANCELED, READ_ONLY, TROUBLE, translate
from rowlock.store.engine.store import StoreOptions
from rowlock.store.engine.transactions import BaseSession, Block

if TYPE_CHECKING:
    from rowlock.store.engine.postgres.store import PostgresStore

T = TypeVar("T")
ANSWER_SECONDS = 5.0
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class PostgresSession(BaseSession):
    """A transaction on one connection."""

    def __init__(self, store: PostgresStore, connection: Any, options: StoreOptions) -> None:
        super().__init__()
        self._store, self.connection, self._options = store, connection, options
        self._quiet_since = time.monotonic()
        self._at_work = self.enqueued = self.over = False

    async def begin(self) -> None:
        """BEGIN, with its limit. SET LOCAL holds for this transaction only, so it is safe behind a pooler, too."""
        limit = max(1, round(self._options.idle_seconds * 1000))
        begin = f"{BEGIN}; SET LOCAL idle_in_transaction_session_timeout = {limit}; {self.connection.guard}"
        await self._do(self.connection.execute(begin))

    async def commit(self) -> None:
        # A COMMIT whose reply was lost may have happened; one that was never sent has not.
        try:
            await self._do(self.connection.execute("COMMIT"), sent=not self.connection.is_closed())
        except TransactionConflict:
            self.over = True
            raise
        self.over = True

    async def roll_back(self) -> None:
        """ROLLBACK. If that fails, the connection is closed, and the server rolls back."""
        with contextlib.suppress(*TROUBLE):
            await self.connection.execute("ROLLBACK")
            self.over = True

    async def run(self, op: Operation[T]) -> T:
        self.enqueued = self.enqueued or op.enqueues
        try:
            return await self._do(self._store.drive(self.connection, op))
        except StoreError as error:
            if op.name in KEYED and getattr(error.__cause__, "sqlstate", None) == SERIALIZATION:
                raise KeyConflict(KEY_CONFLICT) from error
            raise

    async def execute(self, sql: str, *args: Any) -> None:
        await self._do(self.connection.execute(sql, *args, timeout=self._options.statement_seconds), users=True)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        return await self._do(self.connection.fetch(sql, *args, timeout=self._options.statement_seconds), users=True)

    async def _do(self, work: Awaitable[T], *, users: bool = False, sent: bool = False) -> T:
        # The server has counted from when it sent its last reply, which is a little longer.
        ended_by_limit = self.seconds_left() < min(1.0, 0.1 * self._options.idle_seconds)
        self._at_work = True
        try:
            return await work
        except TROUBLE as error:
            if getattr(error, "sqlstate", None) == READ_ONLY:
                self.connection.leaving = True  # after a failover, a new connection may lead to another server
            if users:
                failure = await users_failure(self._store, error, "transaction", self.connection, self._options)
            else:
                failure = translate(error, "transaction", self._store.place, self.connection)
            if ended_by_limit and not sent and isinstance(failure, StoreUnavailable):
                failure = self.too_long()
            self.failed = failure
            self.hindered = self.hindered or isinstance(failure, (TransactionConflict, StorageFull))
            raise failure from error
        except asyncio.CancelledError:  # the server undoes the transaction, and answers a COMMIT without an error
            self.failed = self.failed or StoreError("a statement was cancelled")
            raise
        finally:
            self._at_work, self._quiet_since = False, time.monotonic()

    def seconds_left(self) -> float:
        quiet = 0.0 if self._at_work else time.monotonic() - self._quiet_since
        return self._options.idle_seconds - quiet

    def too_long(self) -> StoreError:
        return TransactionTooLong(
            f"the transaction was left without a statement for {self._options.idle_seconds:g} s and was rolled back;"
            " do slow work before it, or raise the setting transactions.idle_seconds"
        )


async def users_failure(
    store: PostgresStore, error: BaseException, doing: str, connection: Any, options: StoreOptions
) -> StoreError:
    """What a statement of the user failed of. One that takes too long does so again, however often it is tried."""
    if getattr(error, "sqlstate", None) == CANCELED:
        return StoreError(f"{doing}: {error}")
    if isinstance(error, TimeoutError) and await _answers(store):
        return StoreError(
            f"{doing}: a statement took longer than {options.statement_seconds:g} s and was cancelled;"
            " the setting transactions.statement_seconds says how long one may take"
        )
    return translate(error, doing, store.place, connection)


async def _answers(store: PostgresStore) -> bool:
    """Whether the database can be reached now."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await store.execute("SELECT 1")
    except (TimeoutError, StoreError):
        return False
    return True


class UserTransactions:
    """Opens users' transactions on connections of their own."""

    def __init__(self, store: PostgresStore, connections: Connections, options: StoreOptions) -> None:
        self._store, self._connections, self._options = store, connections, options

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Block]:
        """A transaction for the user's own SQL and operations together. Errors of the database become StoreErrors;
        errors that the user's code raises in the block are left as they are."""
        session = PostgresSession(self._store, await self._take("transaction"), self._options)
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
                    await self._store.run(_notify_idle())
        finally:
            if not session.over:
                session.connection.terminate()  # cut off in the middle of a statement: no other caller must get it
            self._connections.give_back(session.connection)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """The user's own query, in a transaction that may not write."""
        connection = await self._take("fetch")
        query = partial(connection.fetch, sql, *args, timeout=self._options.statement_seconds)
        try:
            return await in_transaction(connection, query, readonly=True)
        except TROUBLE as error:
            raise await users_failure(self._store, error, "fetch", connection, self._options) from error
        except RowlockError:
            raise
        except BaseException:
            await call_off(connection, self._options.command_timeout / 10)
            raise
        finally:
            self._connections.give_back(connection)

    async def _take(self, doing: str) -> Any:
        connections, patience = self._connections, self._options.session_patience
        try:
            return await connections.take(patience)
        except TROUBLE as error:
            if isinstance(error, TimeoutError) and connections.crowded:
                raise StoreUnavailable(
                    f"{doing}: all {connections.size} connections for transactions were in use for {patience:g} s;"
                    " the setting transactions.connections says how many a process may have"
                ) from error
            raise translate(error, doing, self._store.place) from error


@operation(single=True, repeatable=True)
def _notify_idle() -> Steps[None]:
    yield Call("notify_idle")


async def in_transaction(connection: Any, work: Callable[[], Awaitable[T]], readonly: bool = False) -> T:
    """Run `work` in a transaction. Not by `async with`: its ROLLBACK on a broken connection would raise another error
    and hide the first; and after a cancellation it would wait for a server that may never answer."""
    transaction = connection.transaction(isolation="read_committed", readonly=readonly)
    await transaction.start()
    try:
        if connection.guard:
            await connection.execute(connection.guard)
        answer = await work()
    except (RowlockError, asyncpg.PostgresError, asyncpg.InterfaceError):
        with contextlib.suppress(*TROUBLE):  # a connection left in its transaction is thrown away
            await transaction.rollback()
        raise
    await transaction.commit()
    return answer
