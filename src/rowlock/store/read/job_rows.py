"""Rows of jobs and attempts as records, read by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rowlock.core.job import Attempt, Job
from rowlock.core.states import FINAL, State
from rowlock.core.times import LAST_MOMENT
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import EARLIEST, LATEST, moment, names, parsed, record

COLUMNS = tuple(field.name for field in fields(Job) if field.name != "unreadable")
_TIMES = tuple(field.name for field in fields(Job) if "datetime" in str(field.type))
_JSON = ("args", "backoff", "result")
# SQLite may hold values in these columns that PostgreSQL's column types refuse: NULL times, numbers as text.
_REQUIRED = ("run_after", "created_at", "updated_at")
_NUMBERS = tuple(field.name for field in fields(Job) if str(field.type).startswith(("int", "float")))


def job_of(row: Row) -> Job:
    """A row of `{part:job}` as a record. A value that cannot be parsed stays as it is stored and is named in
    `unreadable`: one bad row must not make a whole list fail."""
    values: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
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
    for name in _TIMES:
        values[name] = at = moment(values[name])
        if at in (EARLIEST, LATEST) or (at is None and name in _REQUIRED):
            unreadable.append(name)
            values[name] = at or LATEST
    unreadable += [name for name in _NUMBERS if isinstance(values[name], str)]
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
def never_due(n: int) -> Steps[list[tuple[str, str]]]:
    """(id, task) of jobs whose `run_after` is after 2199. The table refuses such times now; old rows may have one."""
    return [(row.id, row.task) for row in (yield Call("never_due", end=LAST_MOMENT, n=n))]
