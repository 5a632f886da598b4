"""`Context`, which a handler gets as `ctx`: the job's ids, progress, whether to stop, and a transaction that commits
with the job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowlock.client.handles.job import JobHandle
from rowlock.client.transactions import AttemptTransaction, joined
from rowlock.core.errors import InvalidArguments, LeaseLost
from rowlock.core.job import Claimed
from rowlock.store.engine.store import Session

if TYPE_CHECKING:
    from rowlock.client.client import Client
    from rowlock.client.tasks.task import Task

Report = Callable[[int | None, str | None, str | None], None]
KeepLine = Callable[[str, str], None]  # level, message


class Awaited:
    """What `ctx.progress()` returns. Awaiting it does nothing, so async and sync handlers can both call it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class KeptLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that also keeps its lines with the job, whatever the program's logging is set to."""

    def __init__(self, logger: logging.Logger, extra: Mapping[str, object], keep: KeepLine) -> None:
        super().__init__(logger, extra)
        self._keep = keep

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().log(level, msg, *args, **kwargs)
        if level >= logging.INFO:
            record = logging.LogRecord("", level, "", 0, msg, args, None)
            try:
                text = record.getMessage()
            except Exception as error:  # as logging itself: a wrong format must not end the attempt
                text = f"{msg!r} {args!r}: {error}"
            self._keep(logging.getLevelName(level), text)


class Context:
    """The running attempt, as its handler sees it. `should_stop` becomes true when the handler is asked to stop;
    `resources` has what the app's lifespans have yielded."""

    def __init__(
        self,
        app: Client | None,
        job: Claimed,
        *,
        report: Report | None = None,
        resources: Mapping[str, Any] | None = None,
        blocking: bool = False,
        keep_line: KeepLine | None = None,
    ) -> None:
        self.job_id, self.task, self.attempt, self.token = job.id, job.task, job.attempt, job.token
        self.owner, self.source, self.queue, self.batch_id = job.owner, job.source, job.queue, job.batch_id
        self.resources: Mapping[str, Any] = resources or {}
        self.should_stop = False
        self._app, self._job, self._report, self._blocking = app, job, report, blocking
        self._keep_line = keep_line
        self.own_transaction = AttemptTransaction(app, job)
        self._lost = False
        self.result_name: str | None = None  # set by result_file()

    @property
    def fence(self) -> int:
        """A number that grows with every attempt. Pass it to outside systems that can refuse an older attempt."""
        return self.attempt

    @property
    def attempt_key(self) -> str:
        """An idempotency key for calls to outside systems. It differs in each attempt."""
        return f"{self.job_id}:{self.attempt}"

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's id, task, attempt and worker. If the task has `keep_logs=True`, lines of
        level INFO and above are also kept with the job and shown on its page in the dashboard."""
        extra = {"job_id": self.job_id, "task": self.task, "attempt": self.attempt, "worker": self._job.worker}
        logger = logging.getLogger(f"rowlock.task.{self.task}")
        if self._keep_line is None:
            return logging.LoggerAdapter(logger, extra)
        return KeptLog(logger, extra, self._keep_line)

    def progress(self, percent: int | None = None, phase: str | None = None, message: str | None = None) -> Awaited:
        """Report progress (0–100 percent). It's written at most four times a second; the latest report wins."""
        if percent is not None and not 0 <= percent <= 100:
            raise InvalidArguments(f"progress must be between 0 and 100, not {percent!r}")
        if self._lost:
            raise LeaseLost(f"job {self.job_id} is no longer held by this attempt", self.job_id, self.token)
        if self._report:
            self._report(None if percent is None else int(percent), phase, message)
        return Awaited()

    def result_file(self, name: str) -> Path:
        """A path to which the handler can write the job's result file. When the attempt succeeds, the file and its
        checksum become the job's result, which can be downloaded through the API. If the attempt fails, the file is
        deleted. A job has at most one result file."""
        if self._app is None:
            raise InvalidArguments("ctx.result_file() works only in a job, not when the task is called as a function")
        if self.result_name not in (None, name):
            raise InvalidArguments(f"a job has one result file; this one has {self.result_name!r} already")
        path = self._app.results.partial(self.job_id, self.attempt, self.token, name)
        self.result_name = name
        return path

    async def enqueue(self, task: Task[..., Any, Any] | str, /, **arguments: Any) -> JobHandle[Any]:
        """Enqueue a job as a child of this one; raises LeaseLost once the attempt has lost its lease. Inside
        `ctx.transaction()`, the new job is part of the transaction. To add a job to this job's batch, write
        `ctx.enqueue(task.using(batch=ctx.batch_id), …)`."""
        if self._app is None:
            raise InvalidArguments("ctx.enqueue() works only in a job, not when the task is called as a function")
        wanted = self._app.get_task(task) if isinstance(task, str) else task
        lease = None if joined(self._app) else (self._job.id, self._job.token)
        return await wanted.enqueue_under(self._job.id, lease, arguments)

    def transaction(self) -> AbstractAsyncContextManager[Session]:
        """A block whose writes are committed together with this job's success, or not at all. Others see them after the
        handler has returned. If the block raises, only its own writes are undone. If several asyncio tasks of a handler
        open blocks, they take turns."""
        if self._app is None or self._blocking:
            raise InvalidArguments("ctx.transaction() is for async handlers that run under a worker")
        return self.own_transaction.block()


def loose_context(task: str) -> Context:
    """The context of a task that is called as a function, without a job."""
    return Context(None, Claimed(id="", task=task, queue="", max_attempts=1))
