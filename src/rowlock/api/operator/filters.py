"""The filter of the operator routes about jobs: the names that addresses and bodies share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints

from rowlock.api.operator.common import moment_before, plain
from rowlock.api.problems import Refusal
from rowlock.api.shapes import NO_NUL, Shape
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job
from rowlock.core.states import State
from rowlock.store.ids import valid_id
from rowlock.store.look import Ids, ids_that_begin
from rowlock.store.reads import JobFilter

SEARCHED = timedelta(days=7)  # how far back a text is searched for without an index
SHORT = 300  # characters of an error in a list

Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]


class FilterShape(Shape):
    """Which jobs; what is not given fits all."""

    state: Word | None = Field(default=None, description="One or more, with commas", examples=["dead,cancelled"])
    queue: Word | None = None
    task: Word | None = None
    owner: Word | None = None
    source: Word | None = None
    tag: Word | None = None
    batch: Word | None = Field(default=None, description="The id of a batch")
    parent: Word | None = Field(default=None, description="The id of the job that made them")
    schedule: Word | None = Field(default=None, description="The name of a schedule")
    error_code: Word | None = None
    since: Word | None = Field(default=None, description="Created since: an ISO time, or a time ago", examples=["2h"])
    until: Word | None = Field(default=None, description="Created before")
    attempt: int | None = Field(default=None, ge=0, le=2**31 - 1, description="At least so many attempts")
    id: Word | None = Field(default=None, description="The first characters of the id")
    text: Word | None = Field(default=None, description="Somewhere in the arguments")

    def read(self) -> tuple[JobFilter, Ids]:
        """The filter of the store; refuses what cannot be meant."""
        if self.batch is not None and valid_id(self.batch) is None:
            raise Refusal("INVALID_REQUEST", errors=[("batch", "must be the id of a batch")])
        if self.parent is not None and valid_id(self.parent) is None:
            raise Refusal("INVALID_REQUEST", errors=[("parent", "must be the id of a job")])
        try:
            within = Ids() if self.id is None else ids_that_begin(self.id)
        except InvalidArguments as error:
            raise Refusal("INVALID_REQUEST", errors=[("id", str(error))]) from None
        since = None if self.since is None else moment_before(self.since, "since")
        self._check_search(since)
        return JobFilter(
            states=self._states(),
            since=since,
            until=None if self.until is None else moment_before(self.until, "until"),
            batch=None if self.batch is None else valid_id(self.batch),
            parent=None if self.parent is None else valid_id(self.parent),
            **self.model_dump(include={"queue", "task", "owner", "source", "tag", "schedule", "attempt", "text"}),
            error_code=self.error_code,
        ), within

    def _states(self) -> tuple[State, ...]:
        if self.state is None:
            return ()
        names = [name.strip().lower() for name in self.state.split(",")]  # without any name, it would fit every job
        if wrong := [name for name in names if name not in list(State)]:
            message = f"{wrong[0][:50]!r} is no state; there are {', '.join(State)}"
            raise Refusal("INVALID_REQUEST", errors=[("state", message)])
        return tuple(dict.fromkeys(State(name) for name in names))

    def _check_search(self, since: datetime | None) -> None:
        """To search a text in all jobs would read all of them."""
        lately = since is not None and since >= datetime.now(UTC) - SEARCHED
        narrow = self.batch or self.parent or self.schedule or self.id or lately
        if self.text is not None and not narrow:
            message = (
                "arguments have no index: give since (within the last 7 days), batch, parent, schedule or id as well"
            )
            raise Refusal("INVALID_REQUEST", errors=[("text", message)])


def job_row(job: Job, zone: ZoneInfo) -> dict[str, Any]:
    """A job as a line of a list."""
    error = job.error_message
    return {
        "jobId": job.id,
        **{
            name: plain(value, zone)
            for name, value in (
                ("task", job.task),
                ("queue", job.queue),
                ("state", job.state),
                ("priority", job.priority),
                ("attempt", job.attempt),
                ("maxAttempts", job.max_attempts),
                ("owner", job.owner),
                ("source", job.source),
                ("tags", job.tags),
                ("batchId", job.batch_id),
                ("scheduleId", job.schedule_id),
                ("progress", job.progress),
                ("phase", job.phase),
                ("message", job.message),
                ("errorCode", job.error_code),
                ("errorMessage", error if error is None else error[:SHORT]),
                ("createdAt", job.created_at),
                ("runAfter", job.run_after),
                ("startedAt", job.started_at),
                ("finishedAt", job.finished_at),
                ("worker", job.locked_by),
            )
        },
    }
