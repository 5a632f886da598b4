"""What a handler is given: who it is, how to report, when to stop, and a transaction that commits with its success."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments, LeaseLost
from rowlock.core.job import Claimed
from rowlock.store.engine import Session

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.handle import JobHandle
    from rowlock.work.tasks import Bound, Task


class Joined:
    """A transaction that enqueues in this context join, for as long as it is open; `lease` is that of the attempt whose
    transaction it is."""

    __slots__ = ("app", "lease", "open", "session")

    def __init__(self, app: Any, session: Session, lease: tuple[str, str] | None = None) -> None:
        self.app, self.session, self.lease, self.open = app, session, lease, True


_joined: ContextVar[Joined | None] = ContextVar("rowlock_transaction", default=None)


def joined(app: Any) -> Session | None:
    """The open transaction of `app` around here. A task that outlives it has a copy of this, and is on its own."""
    around = _joined.get()
    return around.session if around is not None and around.open and around.app is app else None


def joined_lease(app: Any) -> tuple[str, str] | None:
    """The lease of the attempt whose transaction that is."""
    return around.lease if joined(app) is not None and (around := _joined.get()) is not None else None


@asynccontextmanager
async def joining(app: Any, session: Session) -> AsyncIterator[None]:
    """A block whose enqueues join `session`."""
    around = Joined(app, session)
    mark = _joined.set(around)
    try:
        yield
    finally:
        around.open = False
        _joined.reset(mark)


Report = Callable[[int | None, str | None, str | None], None]


class Told:
    """What `ctx.progress()` returns: async handlers may await it, sync ones ignore it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class Context:
    """One attempt, seen from inside its handler."""

    def __init__(
        self,
        app: Rowlock | None,
        job: Claimed,
        *,
        report: Report | None = None,
        resources: Mapping[str, Any] | None = None,
        blocking: bool = False,
    ) -> None:
        self.job_id, self.task, self.attempt, self.token = job.id, job.task, job.attempt, job.token
        self.owner, self.source, self.queue, self.batch_id = job.owner, job.source, job.queue, job.batch_id
        self.resources: Mapping[str, Any] = resources or {}
        self.should_stop = False
        self._app, self._job, self._report, self._blocking = app, job, report, blocking
        self._open: tuple[AbstractAsyncContextManager[Session], Joined] | None = None
        self._blocks = 0
        self._lost = False

    @property
    def fence(self) -> int:
        """Grows with every attempt: give it to outside systems, so that they can refuse an older one."""
        return self.attempt

    @property
    def attempt_key(self) -> str:
        """An idempotency key for outside calls of this attempt."""
        return f"{self.job_id}:{self.attempt}"

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the job's id, task and attempt."""
        extra = {"job_id": self.job_id, "task": self.task, "attempt": self.attempt}
        return logging.LoggerAdapter(logging.getLogger(f"rowlock.task.{self.task}"), extra)

    def progress(self, percent: int | None = None, phase: str | None = None, message: str | None = None) -> Told:
        """Report progress (0–100); at most four times a second reach the database, the latest wins."""
        if percent is not None and not 0 <= percent <= 100:
            raise InvalidArguments(f"progress must be between 0 and 100, not {percent!r}")
        if self._lost:
            raise LeaseLost(f"job {self.job_id} is no longer held by this attempt", self.job_id, self.token)
        if self._report:
            self._report(None if percent is None else int(percent), phase, message)
        return Told()

    async def enqueue(self, task: Task[..., Any, Any] | Bound[..., Any] | str, /, **arguments: Any) -> JobHandle[Any]:
        """Enqueue a job on behalf of this attempt; refused once the lease is lost. Joins `ctx.transaction()`. A job of
        a batch adds to it so: `ctx.enqueue(task.using(batch=ctx.batch_id), …)`."""
        if self._app is None:
            raise InvalidArguments("ctx.enqueue() needs an app")
        under = None if joined(self._app) else (self._job.id, self._job.token)
        return await self._app._enqueue_by_name(task, (), arguments, under)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Writes that commit with this job's success, or not at all. They become visible when the handler returns."""
        if self._app is None or self._blocking:
            raise InvalidArguments("ctx.transaction() is for async handlers that run under a worker")
        if self._open is None:
            manager = (await self._app.store()).transaction()
            lease = (self._job.id, self._job.token)
            self._open = (manager, Joined(self._app, await manager.__aenter__(), lease))
            # For the rest of the handler: an enqueue after the block would otherwise wait for the block's own locks.
            _joined.set(self._open[1])
        session = self._open[1].session
        if self._blocks:
            async with session.savepoint():  # a later block that fails must not take an earlier one along
                yield session
        else:
            try:
                yield session
            except BaseException as error:
                await self.roll_back(error)
                raise
        self._blocks += 1

    @property
    def open_session(self) -> Session | None:
        """The transaction that waits for the handler to return, if there is one."""
        return self._open[1].session if self._open else None

    async def commit(self) -> None:
        """Commit the open transaction. Called by the executor after the success was written into it."""
        assert self._open is not None
        (manager, around), self._open = self._open, None
        around.open = False
        await manager.__aexit__(None, None, None)

    async def roll_back(self, error: BaseException) -> None:
        """Undo the open transaction, if there is one."""
        if self._open is None:
            return
        (manager, around), self._open = self._open, None
        around.open = False
        try:
            await manager.__aexit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error and not isinstance(raised, (Exception, asyncio.CancelledError)):
                raise
