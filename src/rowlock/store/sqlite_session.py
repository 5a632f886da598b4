"""A user's transaction on SQLite, seen from its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
from collections.abc import Callable
from typing import Any, TypeVar

from rowlock.core.errors import RowlockError, StoreError
from rowlock.store.operation import Operation, Ring, Row, drive
from rowlock.store.session import BaseSession
from rowlock.store.sqlite_runner import Runner, user_rows, user_values
from rowlock.store.sqlite_work import Work

T = TypeVar("T")


class SqliteSession(BaseSession):
    """The async side of a user's transaction; each call is carried out by the writer thread."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self.rings: list[Ring] = []
        self.over: RowlockError | None = None
        self._pid = os.getpid()

    def end_with(self, why: RowlockError) -> None:
        """It is over: whatever still comes is told why."""
        self.over = self.over or why
        with contextlib.suppress(queue.Empty):
            while True:
                self.inbox.get_nowait().resolve(error=self.over)

    async def _do(self, do: Callable[[Runner, list[Ring]], T], *, withdraw: bool = True) -> T:
        if os.getpid() != self._pid:
            raise StoreError("this transaction was opened before a fork; it is its parent's alone")
        if self.over is not None:
            raise self.over
        work = Work(do)
        self.inbox.put(work)
        if self.over is not None:  # it ended between the check and the put
            self.end_with(self.over)
        try:
            return await work.wait(withdraw=withdraw)  # type: ignore[no-any-return]
        except Exception as error:
            self.failed = self.failed or error
            raise
        except asyncio.CancelledError:
            # As on PostgreSQL, where a statement that is cut off undoes its transaction.
            self.failed = self.failed or StoreError("a statement was cancelled")
            raise

    def seconds_left(self) -> float:
        """How long to wait before looking again whether its time is up."""
        return 0.5 if self.over is None else 0.0

    def too_long(self) -> RowlockError:
        """Why it is over."""
        assert self.over is not None
        return self.over

    async def run(self, op: Operation[T]) -> T:
        """Run an operation inside this transaction."""
        return await self._do(lambda runner, rings: drive(op.start(), runner.execute, rings.append))

    async def execute(self, sql: str, *args: Any) -> None:
        """The user's own statement; parameters are $1, $2, … as on PostgreSQL, or ?."""
        await self.fetch(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """The user's own query."""
        values = user_values(sql, args)
        return await self._do(lambda runner, rings: user_rows(runner.connection, sql, values))

    async def end(self, how: str) -> None:
        """COMMIT or ROLLBACK, to its end even if its caller is cancelled meanwhile."""
        if self.over is not None:
            if how == "COMMIT":
                raise self.over
            return
        failed = self.failed if how == "COMMIT" else None
        if how == "ROLLBACK" or failed is not None:
            self.rings.clear()
        sql = "ROLLBACK" if failed else how
        await self._do(lambda runner, rings: runner.connection.execute(sql).fetchall(), withdraw=False)
        if failed is not None:  # as on PostgreSQL, where a failed statement undoes its whole transaction
            raise self.undone()
