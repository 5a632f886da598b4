"""`JobHandle`: the handle of a job, with its row as last read, to wait for its result."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter

from rowlock.core.errors import JobCancelled, JobDead, JobNotFound
from rowlock.core.job import Job, NewJob
from rowlock.core.states import State
from rowlock.store.read import job_rows

if TYPE_CHECKING:
    from rowlock.client.client import Client

R = TypeVar("R")
ResultType = TypeAdapter[Any] | None  # turns a stored result into the task's return type, where JSON is not enough
Fresh = tuple[str, NewJob, str | None]  # the arguments, options and source of a job that was just enqueued


class JobHandle(Generic[R]):
    """A job. Every column of its row is an attribute, as last read; `refresh()` reads it again, and `wait()` returns
    the job's result. `created` is false if the enqueue found an older job with the same id or key.

    The row is built when an attribute is first read, because a bulk enqueue makes many handles. If that older job has
    been pruned, there is no row, and reading an attribute raises JobNotFound.
    """

    __slots__ = ("_app", "_result_type", "_row", "created", "id")

    def __init__(
        self,
        app: Client,
        job_id: str,
        row: Job | Fresh | None,
        result_type: ResultType = None,
        created: bool = True,
    ) -> None:
        self._app, self.id, self._row, self._result_type, self.created = app, job_id, row, result_type, created

    def __repr__(self) -> str:
        return f"<Job {self.id} pruned>" if self._row is None else f"<Job {self.id} {self.record.task} {self.state}>"

    @property
    def record(self) -> Job:
        """The row as last read."""
        if self._row is None:
            raise JobNotFound(self.id)
        if not isinstance(self._row, Job):
            self._row = _fresh_row(self.id, *self._row)
        return self._row

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.record, name)

    @property
    def state(self) -> State:
        """The job's state when it was last read."""
        return self.record.state

    @property
    def progress(self) -> int | None:
        """The job's progress in percent, when it was last read."""
        return self.record.progress

    @property
    def result(self) -> Any:
        """What the handler returned, as plain JSON values; `wait()` converts it to the task's return type."""
        return self.record.result

    @property
    def error_message(self) -> str | None:
        """The message of the last failure."""
        return self.record.error_message

    async def refresh(self) -> JobHandle[R]:
        """Read the row again."""
        row = await self._app.perform(job_rows.get(self.id))
        if row is None:
            raise JobNotFound(self.id)
        self._row = row
        return self

    async def wait(self, timeout: float | None = None) -> R:
        """Wait until the job has succeeded and return its result. Raises JobDead or JobCancelled if it ended so, and
        TimeoutError after `timeout` seconds."""
        delay = 0.005
        async with asyncio.timeout(timeout):
            while True:
                await self.refresh()
                if self.record.final:
                    return self._value()
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, 0.25)

    def _value(self) -> R:
        row = self.record
        if row.state is State.DEAD:
            raise JobDead(self.id, row.error_code, row.error_message)
        if row.state is State.CANCELLED:
            raise JobCancelled(self.id, row.error_code)
        if self._result_type is not None and row.result is not None:
            return self._result_type.validate_python(row.result)  # type: ignore[no-any-return]
        return row.result  # type: ignore[no-any-return]


def _fresh_row(job_id: str, args: str, new: NewJob, source: str | None) -> Job:
    """The row of a job that was just enqueued, made of what the client knows, without reading it."""
    now = datetime.now(UTC)
    row: dict[str, Any] = {field.name: getattr(new, field.name, None) for field in fields(Job)}
    row |= {
        "id": job_id,
        "state": State.QUEUED,
        "args": json.loads(args),
        "source": source,
        "attempt": 0,
        "releases": 0,
        "losses": 0,
        "backoff": json.loads(stored) if (stored := new.parameters["backoff"]) else None,
        "run_after": new.run_after or now,
        "created_at": now,
        "updated_at": now,
        "unreadable": (),
    }
    return Job(**row)
