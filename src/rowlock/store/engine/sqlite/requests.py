"""Requests to SQLite's writer thread, and users' transactions; both from the side of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import apsw

from rowlock.core.errors import InvalidArguments, RowlockError, StorageFull, StoreError
from rowlock.store.engine.dialects import SQLITE
from rowlock.store.engine.operation import Operation, UserRow, Wake, drive
from rowlock.store.engine.sqlite.runner import Runner
from rowlock.store.engine.transactions import BaseSession

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

GROUP = 256  # the most operations in one commit
Do = Callable[[Runner, list[Wake]], Any]
Reply = tuple[Any, BaseException | None]  # the value, or the error


class Work:
    """One request to the writer thread, and the future that its caller waits on."""

    __slots__ = ("_once", "answer", "answered", "do", "loop", "session", "withdrawn")

    def __init__(self, do: Do, session: SqliteSession | None = None) -> None:
        self.do, self.session = do, session
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.answered = self.withdrawn = False
        self._once = threading.Lock()

    def take(self) -> bool:
        """True for whichever calls it first: the writer thread to begin the work, or the caller to withdraw it."""
        return self._once.acquire(blocking=False)

    async def wait(self, *, withdraw: bool = True) -> Any:
        """Wait for the answer. A cancelled caller withdraws work that has not begun, and waits for work that has."""
        try:
            return await self.answer
        except asyncio.CancelledError as cancelled:
            if withdraw and self.take():
                self.withdrawn = True
                cancelled.may_have_happened = False  # type: ignore[attr-defined]
            else:
                await self._wait_to_the_end()
            raise

    async def _wait_to_the_end(self) -> None:
        if self.answered:
            return
        self.answer = self.loop.create_future()
        while not self.answer.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self.answer})
        self.answer.exception()

    def resolve(self, value: Any = None, error: BaseException | None = None) -> None:
        def done() -> None:
            self.answered = True
            if not self.answer.done():
                if error is None:
                    self.answer.set_result(value)
                else:
                    self.answer.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(done)
        except RuntimeError:  # the caller's event loop is closed
            log.debug("a caller's event loop was closed before its request was answered")


def groups(inbox: queue.SimpleQueue[Work | None]) -> Iterator[list[Work]]:
    """The requests to write together: all that are waiting, up to GROUP; a user's transaction alone. Ends at None."""
    group: list[Work] = []
    while True:
        try:
            work = inbox.get(block=not group)
        except queue.Empty:
            yield group
            group = []
            continue
        if group and (work is None or work.session is not None or len(group) == GROUP):
            yield group
            group = []
        if work is None:
            return
        if work.session is not None:
            yield [work]
        else:
            group.append(work)


class SqliteSession(BaseSession):
    """The async side of a user's transaction. The writer thread carries out each call."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self.wakes: list[Wake] = []
        self.over: RowlockError | None = None
        self._pid = os.getpid()

    def end_with(self, why: RowlockError) -> None:
        """End the transaction: later calls raise this error."""
        self.over = self.over or why
        with contextlib.suppress(queue.Empty):
            while True:
                self.inbox.get_nowait().resolve(error=self.over)

    async def _do(self, do: Callable[[Runner, list[Wake]], T], *, withdraw: bool = True) -> T:
        if os.getpid() != self._pid:
            raise StoreError("this transaction was opened before a fork, so only the parent process may use it")
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
            self.hindered = self.hindered or isinstance(error, StorageFull)
            raise
        except asyncio.CancelledError:
            # As on PostgreSQL, where an interrupted statement rolls back its transaction.
            self.failed = self.failed or StoreError("a statement was cancelled")
            raise

    def seconds_left(self) -> float:
        """How long to wait before checking again whether the transaction was ended."""
        return 0.5 if self.over is None else 0.0

    def too_long(self) -> RowlockError:
        assert self.over is not None
        return self.over

    async def run(self, op: Operation[T]) -> T:
        return await self._do(partial(drive, op, SQLITE))

    async def execute(self, sql: str, *args: Any) -> None:
        await self.fetch(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        values = user_values(sql, args)
        return await self._do(lambda runner, wakes: user_rows(runner.connection, sql, values))

    async def end(self, how: str) -> None:
        """COMMIT or ROLLBACK. It is completed even if the caller is cancelled."""
        if self.over is not None:
            if how == "COMMIT":
                raise self.over
            return
        failed = self.failed if how == "COMMIT" else None
        if how == "ROLLBACK" or failed is not None:
            self.wakes.clear()
        commits = how == "COMMIT" and failed is None

        def finish(runner: Runner, wakes: list[Wake]) -> None:
            if commits:
                runner.commit(time.monotonic())
            else:
                runner.connection.execute("ROLLBACK")

        await self._do(finish, withdraw=False)
        if failed is not None:  # as on PostgreSQL, where a failed statement rolls back its whole transaction
            raise self.undone()


# --- the user's own statements


def user_values(sql: str, args: Sequence[Any]) -> Any:
    """The parameters of a user's own statement: $1, $2, … as on PostgreSQL, or ?."""
    values = [_readable(arg) for arg in args]
    return {str(n): value for n, value in enumerate(values, 1)} if "$1" in sql else tuple(values)


def user_rows(connection: apsw.Connection, sql: str, values: Any) -> list[UserRow]:
    """The rows of a user's own statement."""
    try:
        return list[UserRow](connection.execute(sql, values).fetchall())
    except KeyError as error:
        raise StoreError(f"the statement has a parameter ${error.args[0]} that was not given: {sql:.200}") from error
    except (TypeError, ValueError) as error:
        problem = "a parameter has a type that SQLite cannot store; pass text, a number, bytes or None"
        raise StoreError(f"{problem}: {values!r:.200}") from error


def _readable(value: Any) -> Any:
    """A value for SQLite. A datetime becomes text in the format of the views, so that it compares with their times."""
    if isinstance(value, (list, tuple)):
        raise InvalidArguments(f"SQLite has no arrays: pass JSON text instead of {value!r:.100}")
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise InvalidArguments(f"a time must have a time zone: {value!r}")
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
