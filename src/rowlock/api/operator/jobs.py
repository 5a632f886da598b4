"""The filter of the operator routes about jobs, lists of jobs with it, their counts, and a job found by a piece of
text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import Query
from pydantic import Field
from pydantic.alias_generators import to_camel

from rowlock.api.context import Service, Serving
from rowlock.api.operator.common import Word, jsonable, moment_before, operator_router, total
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import NO_NUL, Shape, cursor_of, read_cursor
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job
from rowlock.core.states import State
from rowlock.store.engine.ids import valid_id
from rowlock.store.jobs import tasks
from rowlock.store.read import failures, reads, search
from rowlock.store.read.counts import read_queues
from rowlock.store.read.reads import JobFilter
from rowlock.store.read.search import Ids, ids_that_begin
from rowlock.store.schedules import schedules
from rowlock.store.sources import sources

MOST_FOUND = 10
MOST_NAMES = 200
WHOLE_ID = re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", re.IGNORECASE)
BEGINNING = re.compile(r"\b[0-9a-f]{4,8}(?:-[0-9a-f]{0,4}){0,4}[0-9a-f]{0,12}(?![0-9a-z])", re.IGNORECASE)

SEARCHED = timedelta(days=7)  # how far back a text is searched for without an index
SHORT = 300  # characters of an error in a list

# What a line of a list shows of a job, beside its id, its worker and a short form of its error.
SHOWN = (
    *("task", "queue", "state", "priority", "attempt", "max_attempts", "owner", "source", "tags", "batch_id"),
    *("schedule_id", "progress", "phase", "message", "error_code", "created_at", "run_after", "started_at"),
    "finished_at",
)

router = operator_router()


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
    return {
        "jobId": job.id,
        **{to_camel(name): jsonable(getattr(job, name), zone) for name in SHOWN},
        "errorMessage": job.error_message and job.error_message[:SHORT],
        "worker": job.locked_by,
    }


class JobsQuery(FilterShape):
    """A page of jobs."""

    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, max_length=200, description="`nextCursor` of the page before")


@router.get("/jobs", responses=documented("INVALID_CURSOR"))
async def operator_jobs(service: Serving, query: Annotated[JobsQuery, Query()]) -> dict[str, Any]:
    """Jobs that fit, newest first. A page may have fewer than `limit` although there is a next one: a filter that has
    no index is looked for in a bounded number of jobs at a time."""
    wanted, within = query.read()
    before = None if query.cursor is None else read_cursor(query.cursor)
    page = await service.look(search.page(wanted, query.limit, before, within))
    next_ = None if page.next is None else cursor_of(page.next)
    return {"items": await _jobs(service, page.ids), "nextCursor": next_}


@router.get("/jobs/counts")
async def count_jobs(service: Serving, query: Annotated[FilterShape, Query()]) -> dict[str, Any]:
    """How many jobs fit in each state, whatever state the filter names; exact up to 10,000."""
    wanted, within = query.model_copy(update={"state": None}).read()
    found = await service.look(search.count(wanted, within))
    return {"states": {str(state): total([found[state]]) for state in State}, "total": total(found.values())}


@router.get("/find")
async def find_job(
    service: Serving, text: Annotated[str, Query(min_length=1, max_length=2000, pattern=NO_NUL)]
) -> dict[str, Any]:
    """The job of an id, of its first characters, or of an id somewhere in a line of a log."""
    ids = list(dict.fromkeys(found for match in WHOLE_ID.findall(text) if (found := valid_id(match))))[:MOST_FOUND]
    items = await _jobs(service, ids) if ids else []
    for match in [] if items else list(reversed(BEGINNING.findall(text)))[:3]:
        try:
            page = await service.look(search.page(JobFilter(), MOST_FOUND, None, ids_that_begin(match)))
        except InvalidArguments:
            continue
        items = await _jobs(service, page.ids)
        if items:
            break
    return {"jobId": items[0]["jobId"] if len(items) == 1 else None, "items": items}


@router.get("/names")
async def known_names(service: Serving) -> dict[str, Any]:
    """Names that a filter may have, for suggestions."""
    stats = await service.look(read_queues())
    return {
        "queues": [queue.name for queue in stats.queues],
        "tasks": await service.look(tasks.names()),
        "sources": [source.name for source in await service.look(sources.sources(MOST_NAMES))],
        "schedules": [schedule.id for schedule in await service.look(schedules.schedules(MOST_NAMES))],
        "errorCodes": await service.look(failures.error_codes(MOST_NAMES // 2)),
        "states": list(State),
    }


async def _jobs(service: Service, ids: list[str]) -> list[dict[str, Any]]:
    found = await service.look(reads.by_ids(ids)) if ids else []
    return [job_row(job, service.zone) for job in found]
