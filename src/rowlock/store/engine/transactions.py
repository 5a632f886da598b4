"""What the transactions of both engines share: nested blocks that several tasks may use concurrently.

SQL has one stack of savepoints per transaction, and every write belongs to the topmost savepoint. But asyncio has many
tasks, and rolling back one task's block must not undo the writes of another task. So each block (the whole transaction
or a part of it) has a lock, its turn: a statement holds it while it runs, a nested block holds it until it ends, and
other tasks wait for it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from rowlock.core.errors import RowlockError, StoreError
from rowlock.store.engine.operation import Operation, UserRow

T = TypeVar("T")


class BaseSession(ABC):
    """An open transaction of one engine, which runs one statement at a time."""

    def __init__(self) -> None:
        self.failed: BaseException | None = None  # the error of the first statement that failed in it
        self.hindered = False  # a statement in it met a conflict or a full disk, which is not the user's fault
        self.ended = False
        self.savepoints = 0

    @abstractmethod
    async def run(self, op: Operation[T]) -> T:
        """Run an operation."""

    @abstractmethod
    async def execute(self, sql: str, *args: Any) -> None:
        """Run the user's own statement."""

    @abstractmethod
    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """Run the user's own query."""

    @abstractmethod
    def seconds_left(self) -> float:
        """How much longer the transaction may stay open without a statement."""

    @abstractmethod
    def too_long(self) -> RowlockError:
        """The error for a transaction that was open for too long."""

    def undone(self) -> StoreError:
        """The error that a block raises at its end if one of its statements has failed: PostgreSQL then rolls back the
        whole transaction, and SQLite must do so as well."""
        return StoreError(f"a statement of this transaction failed, so all of it was rolled back: {self.failed}")


class Block:
    """An open transaction, or a part of one, as the user gets it."""

    __slots__ = ("_around", "_before", "_open", "_session", "_turn")

    def __init__(self, session: BaseSession, around: Block | None = None, before: Block | None = None) -> None:
        self._session, self._around, self._before, self._open = session, around, before, True
        self._turn = asyncio.Lock()

    async def run(self, op: Operation[T]) -> T:
        """Run an operation inside this transaction."""
        return await self._in_turn(self._session.run, op)

    async def execute(self, sql: str, *args: Any) -> None:
        """Run the user's own statement; parameters are $1, $2, …"""
        await self._in_turn(self._session.execute, sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """Run the user's own query."""
        return await self._in_turn(self._session.fetch, sql, *args)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[Block]:
        """A part of this transaction that can be rolled back alone."""
        async with self.part() as part:
            session = self._session
            session.savepoints += 1
            name, before = f"rowlock_{session.savepoints}", session.failed
            await part.execute(f"SAVEPOINT {name}")
            try:
                yield part
            except BaseException:
                with suppress(StoreError):  # if this fails, the whole transaction fails; raise the block's own error
                    await part.execute(f"ROLLBACK TO {name}")
                    session.failed = before
                raise
            await part.execute(f"RELEASE {name}")

    @asynccontextmanager
    async def part(self) -> AsyncIterator[Block]:
        """A nested block that can't be rolled back alone. This block runs no other statement until it ends."""
        around, before = self.innermost(), _inside.get()
        await around._take_turn()
        part = Block(self._session, around, before)
        _inside.set(part)
        try:
            yield part
        finally:
            part._open = False
            _inside.set(before)
            around._turn.release()

    def innermost(self) -> Block:
        """The last nested block that the caller has opened in this one, if it is still open; else this one."""
        block = _inside.get()
        while block is not None:
            if block._open and block._is_inside(self):
                return block
            block = block._before
        return self

    def _is_inside(self, other: Block) -> bool:
        block: Block | None = self
        while block is not None and block is not other:
            block = block._around
        return block is other

    @property
    def failed(self) -> BaseException | None:
        """The error of the first failed statement in this transaction, which can't be committed any more."""
        return self._session.failed

    @property
    def hindered(self) -> bool:
        """Whether a statement of this transaction met a serialization failure, a deadlock or a full disk, even in a
        part of it that was rolled back alone."""
        return self._session.hindered

    def undone(self) -> StoreError:
        """The error for a transaction in which a statement has failed."""
        return self._session.undone()

    async def finish(self) -> None:
        """Wait for the statements and blocks of other tasks, then refuse new ones."""
        await self._take_turn()
        self.close()
        self._turn.release()

    def close(self) -> None:
        """End the transaction: refuse statements in it and in all its parts."""
        self._session.ended = True

    async def _in_turn(self, do: Callable[..., Awaitable[T]], *args: Any) -> T:
        block = self.innermost()
        await block._take_turn()
        try:
            return await self._marking(do(*args))
        finally:
            block._turn.release()

    async def _marking(self, work: Awaitable[T]) -> T:
        """Run a statement. If it raises or is cancelled, half of it may be done: mark the transaction as failed."""
        try:
            return await work
        except BaseException as error:
            cause = error if isinstance(error, RowlockError) else StoreError(f"it was interrupted: {error!r}")
            self._session.failed = self._session.failed or cause
            raise

    async def _take_turn(self) -> None:
        await take_turn(self._turn, lambda: self)
        if self._session.ended or not self._open:
            self._turn.release()
            raise StoreError("this block of the transaction has ended; no more statements can run in it")


async def take_turn(turn: asyncio.Lock, whose: Callable[[], Block | None]) -> None:
    """Wait for the tasks that are using a block, but only as long as its transaction may stay without a statement,
    because they may be waiting for this task. If there is no block yet, it is being opened: wait without a limit."""
    while True:
        block = whose()
        left = 1.0 if block is None else block._session.seconds_left()
        if left <= 0 and turn.locked() and block is not None:
            raise block._session.too_long()
        with suppress(TimeoutError):
            # Even for a free turn: a task that has already been woken for it goes first.
            async with asyncio.timeout(max(left, 0.01)):
                await turn.acquire()
                return


_inside: ContextVar[Block | None] = ContextVar("rowlock_block", default=None)
