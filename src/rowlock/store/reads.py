"""Read-only queries about jobs: one job, lists, counts, and the statistics of the queues.

Lists and counts must stay quick with a million finished rows. So each of them uses one of four indexes (id, state,
owner, owner and state), and counts stop at a limit and say whether they are exact.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Attempt, Job
from rowlock.core.remote import UNREAD
from rowlock.core.states import FINAL, State
from rowlock.store import aside
from rowlock.store.aside import Aside
from rowlock.store.engines.operation import Call, Row, Steps, operation
from rowlock.store.engines.queries import JOB_COLUMNS, JOB_TIMES
from rowlock.store.ids import valid_id
from rowlock.store.stored_json import names, parsed
from rowlock.store.times import EARLIEST, LATEST, moment

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
COUNT_LIMIT = 10_000
LANES = 5_000  # most (queue, task, priority) combinations with ready jobs that `stats` reads
LOOKS = 20_000  # most waiting rows that one call of `stats` counts
LATELY_SECONDS = 300.0
ASIDE_SHOWN = 100
INDEXED = frozenset({State.RUNNING, State.DEAD, State.CANCELLED})  # states with an index of their own

PLAIN = (
    *("task", "queue", "owner", "source", "since", "until", "batch", "parent", "schedule", "error_code", "attempt"),
    "unchanged_since",
)
_JSON = ("args", "backoff", "result")
# SQLite may hold values in these columns that PostgreSQL's column types refuse: NULL times, numbers as text.
_REQUIRED = ("run_after", "created_at", "updated_at")
_NUMBERS = tuple(field.name for field in fields(Job) if str(field.type).startswith(("int", "float")))


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are wanted. A field that is not given matches all jobs. `since` <= `created_at` < `until`."""

    states: tuple[State, ...] = ()
    task: str | None = None
    queue: str | None = None
    owner: str | None = None
    source: str | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    batch: str | None = None
    parent: str | None = None
    schedule: str | None = None
    error_code: str | None = None
    attempt: int | None = None  # jobs with this attempt number or a higher one
    text: str | None = None  # somewhere in the arguments, as JSON writes it
    unchanged_since: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until", "unchanged_since"):
            moment_ = getattr(self, name)
            if moment_ is not None and moment_.tzinfo is None:
                raise InvalidArguments(f"{name} must have a time zone: {moment_!r}")


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The counts of one queue. `waiting` are the `queued` and `retryable` jobs whose `run_after` is in the future."""

    name: str
    queued: int
    retryable: int
    running: int
    waiting: int
    oldest_ready_seconds: float | None  # how long the oldest claimable job has been claimable
    paused: bool
    longest_running_seconds: float | None  # since the claim of the longest running attempt


@dataclass(frozen=True, slots=True)
class FinishedStats:
    """How many jobs reached one final state lately, and the mean run time of those that ran."""

    count: int
    mean_run_seconds: float | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Queues, workers and recently finished jobs. Numbers that are not exact are lower bounds. In a lane with very many
    ready jobs, only the first ones are checked for being `retryable`."""

    queues: tuple[QueueStats, ...]
    exact: bool
    finished: Mapping[State, FinishedStats]  # in the last LATELY_SECONDS
    finished_tasks: Mapping[str, Mapping[State, FinishedStats]]  # `finished` of each task
    finished_exact: bool
    workers: int
    slots: int
    set_aside: tuple[Aside, ...]  # jobs and batches that are set aside; at most ASIDE_SHOWN


def job_of(row: Row) -> Job:
    """A row of the columns `{job}` as a record. A value that cannot be parsed stays as it is stored and is named in
    `unreadable`: one bad row must not make a whole list fail."""
    values: dict[str, Any] = dict(zip(JOB_COLUMNS, row, strict=True))
    unreadable = [name for name, value in values.items() if isinstance(value, bytes)]
    for name in unreadable:
        values[name] = values[name].decode(errors="backslashreplace")
    try:
        values["state"] = State(values["state"])
    except ValueError:
        unreadable.append("state")
    tags = names(values["tags"])
    if tags is None:
        unreadable.append("tags")
    values["tags"] = tags or ()
    for name in _JSON:
        if values[name] is not None:
            values[name], read = parsed(values[name])
            unreadable += [] if read else [name]
    for name in JOB_TIMES:
        values[name] = at = moment(values[name])
        if at in (EARLIEST, LATEST) or (at is None and name in _REQUIRED):
            unreadable.append(name)
            values[name] = at or LATEST
    unreadable += [name for name in _NUMBERS if isinstance(values[name], str)]
    if values["state"] == State.RUNNING and values["locked_by"] == UNREAD:  # published, but not begun
        values |= {"state": State.QUEUED, "started_at": None}
    return Job(**values, unreadable=tuple(sorted(set(unreadable))))


@operation(read=True)
def get(job_id: str) -> Steps[Job | None]:
    """One job; None if it does not exist, or if the text is not a job id."""
    known = valid_id(job_id)
    if known is None:
        return None
    # Read a second time if nothing was found. On PostgreSQL, one statement can miss a job that moves from jobs_live to
    # a partition of jobs_finished, if that partition was attached between the statement's plan and its snapshot.
    rows = (yield Call("read_job", job_id=known)) or (yield Call("read_job", job_id=known))
    return job_of(rows[0]) if rows else None


@operation(read=True)
def attempts(job_id: str) -> Steps[list[Attempt]]:
    """The attempts of a job that did not succeed, in order."""
    known = valid_id(job_id)
    rows = (yield Call("read_attempts", job_id=known)) if known else []
    return [
        Attempt(
            row.job_id,
            row.attempt,
            row.outcome,
            row.worker,
            moment(row.started_at),
            moment(row.finished_at),
            row.error_code,
            row.error_message,
            row.traceback,
        )
        for row in rows
    ]


@operation(read=True)
def by_ids(ids: Sequence[str]) -> Steps[list[Job]]:
    """The jobs with these ids; ids without a job are left out."""
    return [job_of(row) for row in (yield Call("read_jobs", asked=[(job_id,) for job_id in ids]))]


@operation(read=True)
def result_files(ids: Sequence[str]) -> Steps[dict[str, tuple[bool, str | None]]]:
    """By id, for each of these jobs that exists: whether it has finished, and the URI of its result file."""
    rows = yield Call("result_files", asked=[(job_id,) for job_id in ids])
    return {row.id: (State(row.state) in FINAL, row.result_uri) for row in rows}


@operation(read=True)
def newest_ids(filter: JobFilter, limit: int, before_id: str | None = None) -> Steps[list[str]]:
    """Ids of the jobs that match, newest first. For the next page, give the last id of this page as `before_id`."""
    path = _path(filter)
    rows = yield Call(f"list_{path}", id=_id(before_id, LAST_ID), n=max(limit, 0), **params(filter))
    return [row.id for row in rows]


@operation(read=True)
def list_jobs(filter: JobFilter, limit: int, before_id: str | None = None) -> Steps[list[Job]]:
    """The jobs that match, newest first. For the next page, give the last id of this page as `before_id`."""
    ids = yield from newest_ids(filter, limit, before_id).start()
    # The rows are read by id in a second statement, so they may show changes that came after the first one.
    return (yield from by_ids(ids).start()) if ids else []


@operation(read=True)
def count(filter: JobFilter, limit: int = COUNT_LIMIT) -> Steps[int]:
    """How many jobs match. Exact below `limit`; the result `limit` means that many or more."""
    path = _path(filter)
    rows = yield Call(f"count_{path}", n=max(limit, 0), **params(filter))
    return int(rows[0].number)


def _path(filter: JobFilter) -> str:
    """Which statement, and so which index, to use: `all`, `in_states`, `of_owner` or `of_owner_in_trouble`."""
    if filter.owner is None:
        return "in_states" if filter.states else "all"
    if filter.states and INDEXED.issuperset(filter.states):
        return "of_owner_in_trouble"  # an owner may have a million succeeded jobs and few in these states
    return "of_owner"


def params(filter: JobFilter) -> dict[str, Any]:
    wanted: Iterable[State] = filter.states or State
    states = {str(state): state in wanted for state in State}
    return {name: getattr(filter, name) for name in PLAIN} | _tag(filter.tag) | _text(filter.text) | states


def _text(wanted: str | None) -> dict[str, str | None]:
    """A text as JSON writes it, in both stored spellings (as in `_tag`), without its quotes."""
    if wanted is None:
        return {"text": None, "text_ascii": None}
    return {"text": json.dumps(wanted, ensure_ascii=False)[1:-1], "text_ascii": json.dumps(wanted)[1:-1]}


def _tag(wanted: str | None) -> dict[str, str | None]:
    """A tag as JSON text in both stored spellings: escaped to ASCII by Python, unescaped by PostgreSQL."""
    if wanted is None:
        return {"tag": None, "tag_text": None}
    ascii_, text = json.dumps(wanted), json.dumps(wanted, ensure_ascii=False)
    return {"tag": ascii_, "tag_text": text if text.isprintable() else ascii_}


def _id(text: str | None, otherwise: str) -> str:
    known = otherwise if text is None else valid_id(text)
    if known is None:
        raise InvalidArguments(f"{text!r} is not a job id (a UUID)")
    return known


@operation(read=True)
def never_due(n: int) -> Steps[list[tuple[str, str]]]:
    """(id, task) of jobs whose `run_after` is after 2199. The table refuses such times now; old rows may have one."""
    return [(row.id, row.task) for row in (yield Call("never_due", n=n))]


@dataclass(frozen=True, slots=True)
class ReadyQueues:
    """Jobs that may be claimed now, by queue and state, and how long the first of each queue has been claimable."""

    counted: Counter[tuple[str, str]]
    oldest: dict[str, float]
    exact: bool

    @property
    def ready(self) -> dict[str, int]:
        """How many of each queue."""
        found = Counter[str]()
        for (queue, _), number in self.counted.items():
            found[queue] += number
        return dict(found)


def ready_queues() -> Steps[ReadyQueues]:
    """Count what is ready, at a cost that does not grow with the tables. Where `exact` is false, less was counted."""
    counted, exact = Counter[tuple[str, str]](), True
    oldest: dict[str, float] = {}
    heads = yield Call("lane_heads", n=LANES)
    lanes = sorted({(head.queue, head.task) for head in heads})
    each = max(100, min(COUNT_LIMIT, LOOKS // 2 // max(len(lanes), 1)))
    sizes = (yield Call("lane_sizes", lane=lanes, n=10 * each, looks=each)) if lanes else []
    for lane in sizes:
        counted[lane.queue, "queued"] += lane.ready - lane.retries
        counted[lane.queue, "retryable"] += lane.retries
        exact = exact and lane.ready < each
    for lane in [*sizes, *heads]:  # also the first job of each priority: low priorities may wait longest
        oldest[lane.queue] = max(oldest.get(lane.queue, 0.0), lane.age or 0.0)
    return ReadyQueues(counted, oldest, exact and len(heads) < LANES)


@dataclass(frozen=True, slots=True)
class LiveQueues:
    """Queues with what is unfinished in them, and the workers that are alive."""

    queues: tuple[QueueStats, ...]
    exact: bool
    workers: int
    slots: int


def live_queues() -> Steps[LiveQueues]:
    """The queues that have unfinished jobs, are served or are paused, at a cost that does not grow with the tables."""
    workers = yield Call("live_workers")
    paused = {row.name for row in (yield Call("paused_queues"))}
    ready = yield from ready_queues()
    counted, exact = ready.counted, ready.exact

    waiting = yield Call("waiting_lanes", n=LOOKS)
    for lane in waiting:
        counted[lane.queue, lane.state] += lane.number
        counted[lane.queue, "waiting"] += lane.number
    exact = exact and sum(lane.number for lane in waiting) < LOOKS
    longest: dict[str, float] = {}
    for lane in (yield Call("running_lanes")):
        counted[lane.queue, "queued" if lane.unread else "running"] += lane.number
        if not lane.unread:
            longest[lane.queue] = float(lane.longest or 0.0)  # None: another program wrote the row without times

    served = {name for row in workers for name in names(row.queues) or ()}
    every = sorted(paused | served | {queue for queue, _ in counted})
    oldest = ready.oldest
    return LiveQueues(
        queues=tuple(_queue(name, counted, oldest.get(name), name in paused, longest.get(name)) for name in every),
        exact=exact,
        workers=len(workers),
        slots=sum(row.pool_size for row in workers if isinstance(row.pool_size, int)),
    )


@operation(read=True)
def queues() -> Steps[LiveQueues]:
    """`live_queues` as an operation."""
    return (yield from live_queues())


@operation(read=True)
def stats() -> Steps[Stats]:
    """Statistics of queues, workers and recently finished jobs, at a cost that does not grow with the tables."""
    live = yield from live_queues()
    lately = yield Call("finished_lately", ago=-LATELY_SECONDS, n=COUNT_LIMIT)
    tasks = sorted({row.task for row in lately})
    return Stats(
        queues=live.queues,
        exact=live.exact,
        finished=_finished(lately),
        finished_tasks={task: _finished([row for row in lately if row.task == task]) for task in tasks},
        finished_exact=sum(row.number for row in lately) < COUNT_LIMIT,
        workers=live.workers,
        slots=live.slots,
        set_aside=tuple((yield from aside.newest(ASIDE_SHOWN))),
    )


def _finished(rows: Sequence[Row]) -> dict[State, FinishedStats]:
    """Sum up rows of `finished_lately` by state."""
    found: dict[State, FinishedStats] = {}
    for state in sorted({row.state for row in rows}):
        of_state = [row for row in rows if row.state == state]
        count, ran = sum(row.number for row in of_state), sum(row.ran for row in of_state)
        seconds = sum(float(row.seconds or 0.0) for row in of_state)
        found[State(state)] = FinishedStats(count, seconds / ran if ran else None)
    return found


def _queue(
    name: str, counted: Counter[tuple[str, str]], oldest: float | None, paused: bool, longest: float | None
) -> QueueStats:
    queued, retryable, running, waiting = (
        counted[name, what] for what in ("queued", "retryable", "running", "waiting")
    )
    return QueueStats(name, queued, retryable, running, waiting, oldest, paused, longest)
