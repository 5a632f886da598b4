"""The filter of the operator routes about jobs, lists of jobs with it, their counts, and a job found by a piece of
text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import Query
from pydantic import Field
from pydantic.alias_generators import to_camel

from rowlock.api.context import Service, Serving
from rowlock.api.operator.route import Word, jsonable, operator_router
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import NO_NUL, Shape, cursor_of, read_cursor
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job
from rowlock.core.states import State
from rowlock.store.engine.ids import valid_id
from rowlock.store.jobs import tasks
from rowlock.store.read import failures, job_rows, search
from rowlock.store.read.counts import read_queues
from rowlock.store.read.filter import BadFilter, JobFilter, ids_that_begin, read_filter
from rowlock.store.read.search import Counted
from rowlock.store.schedules import schedules
from rowlock.store.sources import sources

MOST_FOUND = 10
MOST_NAMES = 200
WHOLE_ID = re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", re.IGNORECASE)
BEGINNING = re.compile(r"\b[0-9a-f]{4,8}(?:-[0-9a-f]{0,4}){0,4}[0-9a-f]{0,12}(?![0-9a-z])", re.IGNORECASE)

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

    def read(self) -> JobFilter:
        """The filter of the store; refuses what cannot be meant."""
        try:
            return read_filter(self.model_dump(exclude={"limit", "cursor"}))
        except BadFilter as error:
            raise Refusal("INVALID_REQUEST", errors=[(error.field, error.problem)]) from None


def job_row(job: Job, zone: ZoneInfo) -> dict[str, Any]:
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
    wanted = query.read()
    before = None if query.cursor is None else read_cursor(query.cursor)
    page = await service.look(search.page(wanted, query.limit, before))
    next_ = None if page.next is None else cursor_of(page.next)
    return {"items": await _jobs(service, page.ids), "nextCursor": next_}


@router.get("/jobs/counts")
async def count_jobs(service: Serving, query: Annotated[FilterShape, Query()]) -> dict[str, Any]:
    """How many jobs fit in each state, whatever state the filter names; exact up to 10,000."""
    wanted = query.model_copy(update={"state": None}).read()
    found = await service.look(search.count(wanted))
    return {"states": {str(state): total([found[state]]) for state in State}, "total": total(found.values())}


@router.get("/find")
async def find_job(
    service: Serving, text: Annotated[str, Query(min_length=1, max_length=2000, pattern=NO_NUL)]
) -> dict[str, Any]:
    """The job of an id, of its first characters, or of an id somewhere in a line of a log."""
    ids = list(dict.fromkeys(found for match in WHOLE_ID.findall(text) if (found := valid_id(match))))[:MOST_FOUND]
    items = await _jobs(service, ids)
    for match in [] if items else list(reversed(BEGINNING.findall(text)))[:3]:
        try:
            page = await service.look(search.page(JobFilter(ids=ids_that_begin(match)), MOST_FOUND))
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


def total(counts: Iterable[Counted]) -> dict[str, Any]:
    """Several counts as one."""
    listed = list(counts)
    return {"count": sum(one.count for one in listed), "exact": all(one.exact for one in listed)}


async def _jobs(service: Service, ids: list[str]) -> list[dict[str, Any]]:
    found = await service.look(job_rows.by_ids(ids)) if ids else []
    return [job_row(job, service.zone) for job in found]
