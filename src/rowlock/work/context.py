"""What a handler is given: who it is, how to report, when to stop, and a transaction that commits with its success."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments, LeaseLost
from rowlock.core.job import Claimed
from rowlock.store.engine import Session
from rowlock.work.transactions import AttemptTransaction, joined

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.handle import JobHandle
    from rowlock.work.tasks import Bound, Task


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
        self.own_transaction = AttemptTransaction(app, job)
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

    def transaction(self) -> AbstractAsyncContextManager[Session]:
        """A block whose writes commit with this job's success, or not at all; they become visible when the handler
        returns. If the block raises, it alone is undone. Blocks of several tasks take turns."""
        if self._app is None or self._blocking:
            raise InvalidArguments("ctx.transaction() is for async handlers that run under a worker")
        return self.own_transaction.block()
