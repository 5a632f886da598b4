"""Users' transactions on PostgreSQL: each has its own connection, with limits and errors made for users."""

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
from rowlock.store.engine.postgres.connections import Connections, cancel_and_close
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
        self._is_busy = self.enqueued = self.over = False

    async def begin(self) -> None:
        """BEGIN, with the idle limit. SET LOCAL affects only this transaction, so it is safe behind a pooler."""
        limit = max(1, round(self._options.idle_seconds * 1000))
        begin = f"{BEGIN}; SET LOCAL idle_in_transaction_session_timeout = {limit}; {self.connection.guard}"
        await self._do(self.connection.execute(begin))

    async def commit(self) -> None:
        # If the reply to a COMMIT is lost, it may have taken effect; if it was never sent, it has not.
        try:
            await self._do(self.connection.execute("COMMIT"), sent=not self.connection.is_closed())
        except TransactionConflict:
            self.over = True
            raise
        self.over = True

    async def roll_back(self) -> None:
        """ROLLBACK. If that fails, the connection gets closed, and the server rolls back."""
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
        # The server has counted since it sent its last reply, so its time is up a little earlier than ours.
        ended_by_limit = self.seconds_left() < min(1.0, 0.1 * self._options.idle_seconds)
        self._is_busy = True
        try:
            return await work
        except TROUBLE as error:
            if getattr(error, "sqlstate", None) == READ_ONLY:
                self.connection.retired = True  # after a failover, a new connection may lead to another server
            if users:
                failure = await users_failure(self._store, error, "transaction", self.connection, self._options)
            else:
                failure = translate(error, "transaction", self._store.place, self.connection)
            if ended_by_limit and not sent and isinstance(failure, StoreUnavailable):
                failure = self.too_long()
            self.failed = failure
            self.hindered = self.hindered or isinstance(failure, (TransactionConflict, StorageFull))
            raise failure from error
        except asyncio.CancelledError:  # the server will roll back, even though it answers a COMMIT without an error
            self.failed = self.failed or StoreError("a statement was cancelled")
            raise
        finally:
            self._is_busy, self._quiet_since = False, time.monotonic()

    def seconds_left(self) -> float:
        quiet = 0.0 if self._is_busy else time.monotonic() - self._quiet_since
        return self._options.idle_seconds - quiet

    def too_long(self) -> StoreError:
        return TransactionTooLong(
            f"the transaction ran no statement for {self._options.idle_seconds:g} s and was rolled back;"
            " do slow work before the transaction, or raise the setting transactions.idle_seconds"
        )


async def users_failure(
    store: PostgresStore, error: BaseException, doing: str, connection: Any, options: StoreOptions
) -> StoreError:
    """The error for a failed statement of the user. A statement that took too long isn't an outage: repeating it would
    take as long again."""
    if getattr(error, "sqlstate", None) == CANCELED:
        return StoreError(f"{doing}: {error}")
    if isinstance(error, TimeoutError) and await _answers(store):
        return StoreError(
            f"{doing}: a statement took longer than {options.statement_seconds:g} s and was cancelled;"
            " make it faster, or raise the setting transactions.statement_seconds"
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
    """Opens users' transactions, each on its own connection."""

    def __init__(self, store: PostgresStore, connections: Connections, options: StoreOptions) -> None:
        self._store, self._connections, self._options = store, connections, options

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Block]:
        """A transaction for the user's own SQL and operations together. Errors of the database become StoreErrors;
        other errors that the block raises stay as they are."""
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
                # Each enqueue has notified workers if one was idle at that time. Wake those that became idle since.
                with contextlib.suppress(StoreError):
                    await self._store.run(_notify_idle())
        finally:
            if not session.over:
                session.connection.terminate()  # interrupted in a statement, so no other caller may get it
            self._connections.give_back(session.connection)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """Run the user's own query in a read-only transaction."""
        connection = await self._take("fetch")
        query = partial(connection.fetch, sql, *args, timeout=self._options.statement_seconds)
        try:
            return await in_transaction(connection, query, readonly=True)
        except TROUBLE as error:
            raise await users_failure(self._store, error, "fetch", connection, self._options) from error
        except RowlockError:
            raise
        except BaseException:
            await cancel_and_close(connection, self._options.command_timeout / 10)
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
                    " open fewer transactions at a time, or raise the setting transactions.connections"
                ) from error
            raise translate(error, doing, self._store.place) from error


@operation(single=True, repeatable=True)
def _notify_idle() -> Steps[None]:
    yield Call("notify_idle")


async def in_transaction(connection: Any, work: Callable[[], Awaitable[T]], readonly: bool = False) -> T:
    """Run `work` in a transaction. Doesn't use `async with`: on a broken connection, its ROLLBACK would raise another
    error and hide the first; after a cancellation, it would wait for a server that may never answer."""
    transaction = connection.transaction(isolation="read_committed", readonly=readonly)
    await transaction.start()
    try:
        if connection.guard:
            await connection.execute(connection.guard)
        answer = await work()
    except (RowlockError, asyncpg.PostgresError, asyncpg.InterfaceError):
        with contextlib.suppress(*TROUBLE):  # a connection that stays in its transaction is closed when returned
            await transaction.rollback()
        raise
    await transaction.commit()
    return answer
