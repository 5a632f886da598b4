"""Lists of jobs with any filter, their counts, and a job found by a piece of text."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from rowlock.api.operator.common import operator_router, total
from rowlock.api.operator.filters import FilterShape, job_row
from rowlock.api.problems import Refusal, documented
from rowlock.api.service import Service, Serving
from rowlock.api.shapes import NO_NUL, cursor_of, read_cursor
from rowlock.core.errors import InvalidArguments
from rowlock.core.states import State
from rowlock.store import look, panels, reads, schedules, sources, tasks
from rowlock.store.ids import valid_id
from rowlock.store.look import ids_that_begin
from rowlock.store.reads import JobFilter

MOST_FOUND = 10
MOST_NAMES = 200
WHOLE_ID = re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", re.IGNORECASE)
BEGINNING = re.compile(r"\b[0-9a-f]{4,8}(?:-[0-9a-f]{0,4}){0,4}[0-9a-f]{0,12}(?![0-9a-z])", re.IGNORECASE)

router = operator_router()


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
    page = await service.look(look.page(wanted, query.limit, before, within))
    next_ = None if page.next is None else cursor_of(page.next)
    return {"items": await _jobs(service, page.ids), "nextCursor": next_}


@router.get("/jobs/counts")
async def count_jobs(service: Serving, query: Annotated[FilterShape, Query()]) -> dict[str, Any]:
    """How many jobs fit in each state, whatever state the filter names; exact up to 10,000."""
    wanted, within = query.model_copy(update={"state": None}).read()
    found = await service.look(look.count(wanted, within))
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
            page = await service.look(look.page(JobFilter(), MOST_FOUND, None, ids_that_begin(match)))
        except InvalidArguments:
            continue
        items = await _jobs(service, page.ids)
        if items:
            break
    return {"jobId": items[0]["jobId"] if len(items) == 1 else None, "items": items}


@router.get("/names")
async def known_names(service: Serving) -> dict[str, Any]:
    """Names that a filter may have, for suggestions."""
    stats = await service.look(reads.queues())
    return {
        "queues": [queue.name for queue in stats.queues],
        "tasks": await service.look(tasks.names()),
        "sources": [source.name for source in await service.look(sources.sources(MOST_NAMES))],
        "schedules": [schedule.id for schedule in await service.look(schedules.schedules(MOST_NAMES))],
        "errorCodes": await service.look(panels.error_codes(MOST_NAMES // 2)),
        "states": list(State),
    }


async def _jobs(service: Service, ids: list[str]) -> list[dict[str, Any]]:
    found = await service.look(reads.by_ids(ids)) if ids else []
    return [job_row(job, service.zone) for job in found]


def no_such_job() -> Refusal:
    """The answer about a job that is not there."""
    return Refusal("NOT_FOUND", "there is no such job")
