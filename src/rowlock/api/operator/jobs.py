"""Jobs as operators see them: a filter and lists with it, a job found by a piece of text, everything about one job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from pydantic.alias_generators import to_camel

from rowlock.api.access.sender import Asker
from rowlock.api.context import JobId, Service, Serving, Who
from rowlock.api.operator.route import NOT_FOUND, Word, existing, operator_router
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import NO_NUL, Shape, cursor_of, read_cursor
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Attempt, Job
from rowlock.core.states import FINAL, State
from rowlock.store import batches, workers
from rowlock.store.batches import BatchRow
from rowlock.store.engine.ids import valid_id
from rowlock.store.jobs import bulk, tasks
from rowlock.store.read import failures, job_logs, job_rows, search
from rowlock.store.read import relatives as family
from rowlock.store.read.counts import read_queues
from rowlock.store.read.explain import Explanation, explain
from rowlock.store.read.filter import BadFilter, JobFilter, ids_that_begin, read_filter
from rowlock.store.read.relatives import Relative
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
# Where the thing that holds a job up is shown.
BLOCKED_BY = {
    **dict.fromkeys(("paused", "unserved", "unknown", "line", "next"), "queues"),
    **dict.fromkeys(("saturated", "rate", "breaker", "probe", "stopped"), "sources"),
    **dict.fromkeys(("running", "cancelling", "lost"), "workers"),
}
# What the page of a job shows beside that.
MORE = (
    *("timeout_seconds", "expires_at", "releases", "losses", "cancel_requested_at", "locked_at", "heartbeat_at"),
    *("lease_expires_at", "result_uri", "tick", "updated_at", "backoff", "unreadable"),
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


def job_row(service: Service, job: Job) -> dict[str, Any]:
    return {
        "jobId": job.id,
        **{to_camel(name): service.json(getattr(job, name)) for name in SHOWN},
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
    return [job_row(service, job) for job in found]


# --- one job


@router.get("/jobs/{jobId}", responses=NOT_FOUND)
async def operator_job(service: Serving, asker: Who, job_id: JobId) -> dict[str, Any]:
    """One job: its row, attempts, timeline, arguments, result, why it is not running, what belongs to it, its log."""
    job = existing(await service.look(job_rows.get(job_id)))
    attempts = await service.look(job_rows.attempts(job.id))
    details = {to_camel(name): service.json(getattr(job, name)) for name in MORE} | {"checksum": job.result_checksum}
    return {
        "job": {**job_row(service, job), "errorMessage": job.error_message, **details},
        "args": service.json(job.args),
        "result": service.json(job.result),
        "attempts": [_attempt(service, one) for one in attempts],
        "timeline": service.json(list(timeline(job, attempts))),
        "explain": _explained(job, await service.look(explain(job.id)), service),
        "links": await _links(service, job),
        "logs": service.json(await service.look(job_logs.read(job.id))),
        "can": possible(job, asker),
    }


@router.get("/jobs/{jobId}/logs", responses=NOT_FOUND)
async def operator_job_logs(
    service: Serving, job_id: JobId, after: Annotated[int, Query(ge=0, le=2**62)] = 0
) -> dict[str, Any]:
    """The newest log lines of a job after a line."""
    existing(await service.look(job_rows.get(job_id)))
    return service.record(await service.look(job_logs.read(job_id, after)))


def possible(job: Job, asker: Asker) -> list[str]:
    if not asker.may_change:
        return []
    found = [name for name, verb in bulk.VERBS.items() if job.state in verb.possible]
    if "runNow" in found and job.state is State.QUEUED and job.run_after <= job.created_at:
        found.remove("runNow")  # it waits for a worker, not for its time
    return [*found, *(["again"] if job.state in FINAL else [])]


def timeline(job: Job, attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    """How the job spent its time: delay (until its time), wait (for a worker), run, lost (a run whose lease ran out)
    and backoff (before another try). The last one has no end while it goes on."""
    at, pause = job.created_at, "wait"
    for one in attempts:
        began = one.started_at or one.finished_at
        yield _part(pause, at, began)
        yield _part("lost" if one.outcome == "lost" else "run", began, one.finished_at, one.attempt, one.outcome)
        at, pause = one.finished_at, "backoff"
    recorded = {one.attempt for one in attempts}
    if job.started_at is not None and job.attempt not in recorded and job.attempt > 0:
        yield _part(pause, at, job.started_at)
        outcome = "succeeded" if job.state is State.SUCCEEDED else None
        yield _part("run", job.started_at, job.finished_at, job.attempt, outcome)
    elif job.finished_at is None:
        if job.run_after > at + timedelta(seconds=1):
            yield _part("backoff" if attempts else "delay", at, job.run_after)
            at = job.run_after
        yield _part("wait", at, None)
    elif not attempts or (job.state is State.CANCELLED and attempts[-1].outcome != "cancelled"):
        # It was cancelled while it waited. Else its last attempt has ended it, in one transaction.
        yield _part(pause, at, job.finished_at)


def _part(
    kind: str, begin: datetime, end: datetime | None, attempt: int | None = None, outcome: str | None = None
) -> dict[str, Any]:
    return {"kind": kind, "from": begin, "to": end, "attempt": attempt, "outcome": outcome}


def _attempt(service: Service, one: Attempt) -> dict[str, Any]:
    found = service.record(one)
    del found["jobId"]
    return found | {"endedAt": found.pop("finishedAt")}


def _explained(job: Job, why: Explanation | None, service: Service) -> dict[str, Any] | None:
    if why is None:
        return None
    view = BLOCKED_BY.get(why.reason)
    names = {"queues": job.queue, "sources": job.source, "workers": job.locked_by}
    return {
        "reason": why.reason,
        "text": why.text,
        "also": list(why.also),
        "waitsUntil": service.json(why.waits_until),
        "view": view,
        "name": names.get(view or ""),
    }


# --- what belongs to it


async def _links(service: Service, job: Job) -> dict[str, Any]:
    batch = await service.look(batches.get(job.batch_id)) if job.batch_id is not None else None
    living = {one.id: one.alive for one in await service.look(workers.workers())} if job.locked_by is not None else {}
    relatives = await service.look(family.of_job(job.id))
    return {
        "parent": None if relatives.parent is None else job_link(relatives.parent),
        "children": [job_link(one) for one in relatives.children],
        "childCount": {"count": relatives.number.count, "exact": relatives.number.exact},
        "batch": _batch_link(batch),
        "endedBatch": _batch_link(await _ended_batch(service, job)),
        "schedule": None if job.schedule_id is None else {"id": job.schedule_id},
        "worker": None if job.locked_by is None else {"id": job.locked_by, "alive": living.get(job.locked_by, False)},
    }


async def _ended_batch(service: Service, job: Job) -> BatchRow | None:
    """The batch whose end made this job: the job has its id among its arguments, and the batch has the job's."""
    ended = job.args.get("batch") if isinstance(job.args, dict) else None
    batch_id = ended.get("batch_id") if isinstance(ended, dict) else None
    batch = await service.look(batches.get(batch_id)) if isinstance(batch_id, str) else None
    return batch if batch is not None and batch.end_job == job.id else None


def _batch_link(batch: BatchRow | None) -> dict[str, Any] | None:
    return None if batch is None else {"id": batch.id, "name": batch.name, "state": batch.state}


def job_link(job: Relative) -> dict[str, Any]:
    """A job as a link; one that was deleted has neither task nor state."""
    return {"jobId": job.id, "task": job.task, "state": job.state}
