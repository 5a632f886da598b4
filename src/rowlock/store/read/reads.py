"""Read-only queries about jobs: one job, lists, counts.

Lists and counts must stay quick with a million finished rows. So each of them uses one of four indexes (id, state,
owner, owner and state), and counts stop at a limit and say whether they are exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Attempt, Job
from rowlock.core.option_checks import END
from rowlock.core.redis_request import UNREAD
from rowlock.core.states import FINAL, State
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import EARLIEST, LATEST, moment, names, parsed, record
from rowlock.store.engine.statements import JOB_COLUMNS, JOB_TIMES

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
COUNT_LIMIT = 10_000
INDEXED = frozenset({State.RUNNING, State.DEAD, State.CANCELLED})  # states with an index of their own

AS_GIVEN = (  # fields of a filter that a statement gets as they are
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
    return [record(Attempt, row) for row in rows]


@operation(read=True)
def by_ids(ids: Sequence[str]) -> Steps[list[Job]]:
    """The jobs with these ids; ids without a job are left out."""
    return [job_of(row) for row in (yield Call("read_jobs", asked=[(job_id,) for job_id in ids]))]


@operation(read=True)
def result_files(ids: Sequence[str]) -> Steps[dict[str, tuple[bool, str | None]]]:
    """By id, for each of these jobs that exists: whether it has finished, and the URI of its result file."""
    rows = yield Call("job_states", asked=[(job_id,) for job_id in ids])
    return {row.id: (State(row.state) in FINAL, row.result_uri) for row in rows}


@operation(read=True)
def newest_ids(filter: JobFilter, limit: int, before_id: str | None = None) -> Steps[list[str]]:
    """Ids of the jobs that match, newest first. For the next page, give the last id of this page as `before_id`."""
    path = _path(filter)
    rows = yield Call(f"list_{path}", id=checked_id(before_id, LAST_ID), n=max(limit, 0), **params(filter))
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
    return {name: getattr(filter, name) for name in AS_GIVEN} | _tag(filter.tag) | _text(filter.text) | states


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


def checked_id(text: str | None, otherwise: str) -> str:
    """A job id in its canonical form, `otherwise` if there is none; InvalidArguments for other texts."""
    known = otherwise if text is None else valid_id(text)
    if known is None:
        raise InvalidArguments(f"{text!r} is not a job id (a UUID)")
    return known


@operation(read=True)
def never_due(n: int) -> Steps[list[tuple[str, str]]]:
    """(id, task) of jobs whose `run_after` is after 2199. The table refuses such times now; old rows may have one."""
    return [(row.id, row.task) for row in (yield Call("never_due", end=END, n=n))]
