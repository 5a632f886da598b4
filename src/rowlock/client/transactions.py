"""The transaction that the running code is part of, and which its enqueues join: a block of `app.transaction()`, or the
attempt's `ctx.transaction()`, which commits with the attempt's success or not at all."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.core.error_text import clean, describe
from rowlock.core.errors import (
    InvalidArguments,
    KeyConflict,
    NotAllowed,
    StorageFull,
    StoreError,
    StoreUnavailable,
    TransactionConflict,
)
from rowlock.core.job import Claimed, running_job
from rowlock.core.outcome import Released
from rowlock.store.engine.operation import Operation, UserRow
from rowlock.store.engine.store import Session
from rowlock.store.engine.transactions import Block, take_turn

if TYPE_CHECKING:
    from rowlock.client.client import Client

LeaseKey = tuple[str, str]  # a job's id and the token of its lease
T = TypeVar("T")
log = logging.getLogger("rowlock.worker")
# After these, nothing of the transaction has happened and the job isn't to blame: it is given back.
UNDONE = (StoreUnavailable, StorageFull, TransactionConflict, KeyConflict)
MOST_GIVEN_BACK = 10  # times in a row that one job is given back for one of these; the next one counts as a try


class JoinableTransaction:
    """A transaction that enqueues and reads in this context join while it is open."""

    session: Block | None = None  # while it is open
    outer: JoinableTransaction | None = None  # the one that this context was in before

    def __init__(self, app: Any) -> None:
        self.app = app

    @property
    def lease(self) -> LeaseKey | None:
        """The lease of the attempt whose transaction this is, if it is an attempt's."""
        return None

    def joinable(self) -> Session | None:
        """The session to join, if the transaction is open."""
        return self.session

    def enter(self) -> None:
        """From now on, enqueues of the running asyncio task, and of tasks that it starts, join this transaction."""
        entered.set(self)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """As `enter`, until the block ends; then the transaction around it, if any, is joined again."""
        self.outer = entered.get()
        self.enter()
        try:
            yield
        finally:
            entered.set(self.outer)


# Set for each attempt and each block of `app.transaction()`. Tasks that are started inside copy only the reference:
# they see it being opened and closed after their start.
entered: ContextVar[JoinableTransaction | None] = ContextVar("rowlock_transaction", default=None)


def joined(app: Any) -> Session | None:
    """The open transaction of `app` in this context, or None. A task that outlives the transaction has none."""
    if entered.get() is None:  # most enqueues are not in a transaction
        return None
    around = nearest(app)
    return around.joinable() if around is not None else None


def joined_lease(app: Any) -> LeaseKey | None:
    """The lease of the attempt whose transaction `joined` returns, or None."""
    around = nearest(app)
    return around.lease if around is not None else None


def parent_in(app: Any) -> str | None:
    """The id of the job of `app` whose handler runs here."""
    return None if (job := running_job(app)) is None else job.id


def leave() -> None:
    """Forget the transaction that this asyncio task inherited from the code that started it."""
    if entered.get() is not None:
        entered.set(None)


def nearest(app: Any) -> JoinableTransaction | None:
    """The innermost open transaction of `app` in this context, or None."""
    around = entered.get()
    while around is not None and (around.app is not app or around.joinable() is None):
        around = around.outer
    return around


@asynccontextmanager
async def joining(app: Any, session: Block) -> AsyncIterator[None]:
    """A block whose enqueues join `session`."""
    around = JoinableTransaction(app)
    around.session = session
    with around.inside():
        try:
            yield
        finally:
            around.session = None


class AttemptTransaction(JoinableTransaction):
    """What the blocks of one attempt write; it commits with the attempt's success, or not at all.

    The first block begins it, and it stays open until the handler returns. Blocks of several asyncio tasks take turns.
    Statements outside of a block wait until the open block has ended: if that raised, they would be undone with it.
    """

    # Values of the class, because one of these is made for every attempt, and most have no transaction.
    _manager: AbstractAsyncContextManager[Block] | None = None
    _turn: asyncio.Lock | None = None
    _holds_work = _over = False
    _unavailable = False  # one of UNDONE has happened to it

    def __init__(self, app: Client | None, job: Claimed) -> None:
        self.app, self._job = app, job

    @property
    def lease(self) -> LeaseKey:
        return self._job.id, self._job.token

    # --- blocks

    @asynccontextmanager
    async def block(self) -> AsyncIterator[Session]:
        """A savepoint of the transaction: if the block raises, only the block is undone. Inside another block, a
        savepoint of that."""
        self._check_place()
        if self.session is not None and (inner := self.session.innermost()) is not self.session:
            async with inner.savepoint() as part:
                yield part
            return
        async with self._own_turn():
            self._check_place()
            async with self._first_block() if self.session is None else self.session.savepoint() as part:
                yield part
            self._holds_work = True

    @asynccontextmanager
    async def _first_block(self) -> AsyncIterator[Session]:
        """The first block needs no savepoint: nothing was written before it that must stay."""
        session = await self._begin()
        try:
            async with session.part() as part:
                yield part
        except BaseException as error:
            await self.roll_back(error)
            raise

    async def _begin(self) -> Block:
        manager = (await self.app.store()).transaction()
        try:
            session: Block = await manager.__aenter__()
        except UNDONE:
            self._unavailable = True
            raise
        self._manager, self.session, self._unavailable = manager, session, False
        if self._over:  # meanwhile the handler has returned
            await self.roll_back(asyncio.CancelledError())
            self._check_place()
        return session

    def _check_place(self) -> None:
        if self._over:
            raise NotAllowed(
                f"the attempt of job {self._job.id} has ended: ctx.transaction() commits with its success, so a handler"
                " must await the tasks that use it"
            )
        around = nearest(self.app)
        if around is not None and around is not self:
            raise InvalidArguments(
                "ctx.transaction() inside of app.transaction(): the one commits with the job, the other with its block;"
                " open ctx.transaction() first, then app.transaction() is part of it"
            )

    # --- outside of the blocks

    def joinable(self) -> Session | None:
        """The innermost open block of this context, else the whole transaction."""
        if self.session is not None:
            inner = self.session.innermost()
            return self if inner is self.session else inner
        return self if self._turn is not None and self._turn.locked() and not self._over else None  # it is being opened

    async def run(self, op: Operation[T]) -> T:
        if op.read and not self._holds_work:  # nothing to see in it: no need to wait for the first block
            return await (await self.app.store()).run(op)  # type: ignore[no-any-return]
        async with self._own_turn():
            return await self._opened().run(op)

    async def execute(self, sql: str, *args: Any) -> None:
        async with self._own_turn():
            await self._opened().execute(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        if not self._holds_work:
            return await (await self.app.store()).fetch(sql, *args)  # type: ignore[no-any-return]
        async with self._own_turn():
            return await self._opened().fetch(sql, *args)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[Session]:
        """A part of it that can be undone alone."""
        async with self._own_turn(), self._opened().savepoint() as part:
            yield part

    @asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        self._turn = turn = self._turn or asyncio.Lock()
        await take_turn(turn, lambda: self.session)
        try:
            yield
        finally:
            turn.release()

    def _opened(self) -> Block:
        if self.session is None:
            raise StoreError(
                "the ctx.transaction() that this waited for was rolled back: its first block, in another task, raised"
            )
        return self.session

    # --- the end

    async def check(self) -> None:
        """Wait for a block that is still open in another task, and raise if what is in it cannot be kept."""
        async with self._own_turn():
            session = self._opened()
            if isinstance(session.failed, UNDONE):
                raise session.failed
            if session.failed is not None:
                raise session.undone()

    def close(self) -> bool:
        """The handler has returned: no block may begin any more. Returns whether there is something to commit."""
        self._over = True
        return self.session is not None

    async def commit(self) -> None:
        """Commit. Called after the success was written into it."""
        manager = self._detach()
        assert manager is not None
        await manager.__aexit__(None, None, None)

    async def roll_back(self, error: BaseException) -> None:
        """Undo it, if it was begun; `error` is why."""
        session = self.session
        if session is not None and (isinstance(session.failed, UNDONE) or session.hindered):
            self._unavailable = True
        manager = self._detach()
        if manager is None:
            return
        try:
            await manager.__aexit__(type(error), error, None)
        except BaseException as raised:
            if raised is not error and not isinstance(raised, (Exception, asyncio.CancelledError)):
                raise

    def _detach(self) -> AbstractAsyncContextManager[Block] | None:
        manager, self._manager, self.session, self._holds_work = self._manager, None, None, False
        return manager

    def was_lost(self, error: BaseException) -> bool:
        """Whether the handler failed only because this transaction was undone: by a broken connection, a full disk or
        another transaction."""
        return self._unavailable and _is_unavailable(error)


def _is_unavailable(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_unavailable, error.exceptions))
    return isinstance(error, UNDONE)


def given_back(job: Claimed, error: BaseException) -> Released:
    """The end of an attempt whose transaction was rolled back because the database went away or its disk was full, or
    because of a conflict with another transaction: nothing of it happened, so it doesn't count as a try. Not for ever:
    it may be the job's own SQL that takes the server down, fills the disk or conflicts with itself."""
    if job.disconnects_in_row >= MOST_GIVEN_BACK:
        raise error
    after = random.uniform(0.5, 1.0) * (1 + job.disconnects_in_row)
    cause = error
    while isinstance(cause, BaseExceptionGroup):  # all of its members mean that the transaction was undone
        cause = cause.exceptions[0]
    reason = clean(f"its transaction was rolled back: {describe(cause)}")
    log.warning("Job %s (%s) starts again in %.1f s, without using a try: %s", job.id, job.task, after, reason)
    return Released(after, reason, "disconnect")
