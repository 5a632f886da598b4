"""What a handler is given: who it is, how to report, when to stop, and a transaction that commits with its success."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from rowlock.client.handle import JobHandle
from rowlock.client.results import Results
from rowlock.client.transactions import AttemptTransaction, LeaseKey, Opens, joined
from rowlock.core.errors import InvalidArguments, LeaseLost
from rowlock.core.job import Claimed
from rowlock.store.engines.engine import Session

Report = Callable[[int | None, str | None, str | None], None]


class Enqueues(Protocol):
    """A task, as `ctx.enqueue()` needs it."""

    async def enqueue_under(self, lease: LeaseKey | None, arguments: Mapping[str, Any]) -> JobHandle[Any]: ...


class App(Opens, Protocol):
    """The app of an attempt, as its context needs it."""

    def get_task(self, wanted: str) -> Enqueues: ...
    @property
    def results(self) -> Results: ...


class Told:
    """What `ctx.progress()` returns: async handlers may await it, sync ones ignore it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class Context:
    """One attempt, seen from inside its handler."""

    def __init__(
        self,
        app: App | None,
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
        self.result_name: str | None = None  # of the file that the handler asked for

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

    def result_file(self, name: str) -> Path:
        """A path to write this job's file to. When the attempt succeeds, the file becomes the job's result, with its
        checksum, and can be downloaded through the API; if it fails, the file is removed. A job has one such file."""
        if self._app is None:
            raise InvalidArguments("ctx.result_file() needs an app")
        if self.result_name not in (None, name):
            raise InvalidArguments(f"a job has one result file; this one has {self.result_name!r} already")
        path = self._app.results.partial(self.job_id, self.attempt, self.token, name)
        self.result_name = name
        return path

    async def enqueue(self, task: Enqueues | str, /, **arguments: Any) -> JobHandle[Any]:
        """Enqueue a job of a task on behalf of this attempt; refused once the lease is lost. Joins `ctx.transaction()`.
        A job of a batch adds to its batch so: `ctx.enqueue(task.using(batch=ctx.batch_id), …)`."""
        if self._app is None:
            raise InvalidArguments("ctx.enqueue() needs an app")
        wanted = self._app.get_task(task) if isinstance(task, str) else task
        lease = None if joined(self._app) else (self._job.id, self._job.token)
        return await wanted.enqueue_under(lease, arguments)

    def transaction(self) -> AbstractAsyncContextManager[Session]:
        """A block whose writes commit with this job's success, or not at all; they become visible when the handler
        returns. If the block raises, it alone is undone. Blocks of several tasks take turns."""
        if self._app is None or self._blocking:
            raise InvalidArguments("ctx.transaction() is for async handlers that run under a worker")
        return self.own_transaction.block()


def loose_context(task: str) -> Context:
    """The context of a plain call, outside of any job."""
    return Context(None, Claimed(id="", task=task, queue="", max_attempts=1))
