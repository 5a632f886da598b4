"""A user's transaction on PostgreSQL: its statements, its limits, and what their errors say."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

from rowlock.core.errors import KeyConflict, StoreError, StoreUnavailable, TransactionTooLong
from rowlock.store.engines.engine import StoreOptions
from rowlock.store.engines.foreign import KEY_CONFLICT, KEYED, SERIALIZATION
from rowlock.store.engines.operation import Operation
from rowlock.store.engines.postgres_errors import TROUBLE
from rowlock.store.engines.rows import UserRow
from rowlock.store.engines.session import BaseSession

T = TypeVar("T")


class Driver(Protocol):
    """What a transaction needs of its store."""

    def drive(self, connection: Any, op: Operation[T]) -> Awaitable[T]: ...
    async def failure(self, error: BaseException, doing: str, connection: Any) -> StoreError: ...
    async def users_failure(self, error: BaseException, doing: str, connection: Any) -> StoreError: ...


class PostgresSession(BaseSession):
    """A transaction on one connection."""

    def __init__(self, store: Driver, connection: Any, options: StoreOptions) -> None:
        super().__init__()
        self._store, self.connection, self._options = store, connection, options
        self._quiet_since = time.monotonic()
        self._at_work = self.enqueued = self.over = False

    async def begin(self) -> None:
        """BEGIN. Its limit is set for this transaction alone, which a pooler lets pass, too."""
        limit = max(1, round(self._options.idle_seconds * 1000))
        await self._do(self.connection.execute(f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {limit}"))

    async def commit(self) -> None:
        """COMMIT."""
        # One whose answer is lost may have happened; only what was never sent is sure to have not.
        await self._do(self.connection.execute("COMMIT"), sent=not self.connection.is_closed())
        self.over = True

    async def roll_back(self) -> None:
        """ROLLBACK; a connection on which it fails is thrown away, which has the same effect."""
        with contextlib.suppress(*TROUBLE):
            await self.connection.execute("ROLLBACK")
            self.over = True

    async def run(self, op: Operation[T]) -> T:
        """Run an operation inside this transaction."""
        self.enqueued = self.enqueued or op.enqueues
        try:
            return await self._do(self._store.drive(self.connection, op))
        except StoreError as error:
            if op.name in KEYED and getattr(error.__cause__, "sqlstate", None) == SERIALIZATION:
                raise KeyConflict(KEY_CONFLICT) from error
            raise

    async def execute(self, sql: str, *args: Any) -> None:
        """The user's own statement; parameters are $1, $2, …"""
        await self._do(self.connection.execute(sql, *args, timeout=self._options.statement_seconds), users=True)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """The user's own query."""
        return await self._do(self.connection.fetch(sql, *args, timeout=self._options.statement_seconds), users=True)

    async def _do(self, work: Awaitable[T], *, users: bool = False, sent: bool = False) -> T:
        # The server began to count a little earlier: when it had sent its last answer.
        ended_by_limit = self.seconds_left() < min(1.0, 0.1 * self._options.idle_seconds)
        self._at_work = True
        try:
            return await work
        except TROUBLE as error:
            explain = self._store.users_failure if users else self._store.failure
            failure = await explain(error, "transaction", self.connection)
            if ended_by_limit and not sent and isinstance(failure, StoreUnavailable):
                failure = self.too_long()
            self.failed = failure
            raise failure from error
        except asyncio.CancelledError:  # the server undoes the transaction, and would answer COMMIT all the same
            self.failed = self.failed or StoreError("a statement was cancelled")
            raise
        finally:
            self._at_work, self._quiet_since = False, time.monotonic()

    def seconds_left(self) -> float:
        """How long it may still be left without a statement."""
        quiet = 0.0 if self._at_work else time.monotonic() - self._quiet_since
        return self._options.idle_seconds - quiet

    def too_long(self) -> StoreError:
        """The error of one that was left without a statement for too long."""
        return TransactionTooLong(
            f"the transaction was left without a statement for {self._options.idle_seconds:g} s and was rolled back;"
            " do slow work before it, or raise the setting transactions.idle_seconds"
        )
