"""Read jobs and attempts by id, as records."""

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
# On SQLite these columns may hold values that PostgreSQL's types refuse: times that are NULL, numbers that are text.
_REQUIRED = ("run_after", "created_at", "updated_at")
_NUMBERS = tuple(field.name for field in fields(Job) if str(field.type).startswith(("int", "float")))


def job_of(row: Row) -> Job:
    """Turn a row of `{part:job}` into a record. A value that can't be parsed is left as stored and its field named in
    `unreadable`, because one bad row must not make a whole list fail."""
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
    """One job. None if it doesn't exist, or if the text isn't a job id."""
    known = valid_id(job_id)
    if known is None:
        return None
    # If nothing is found, read again: on PostgreSQL, a statement can miss a job that moves from jobs_live to a
    # partition of jobs_finished which was attached between the statement's plan and its snapshot.
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
    """For each of these jobs that exists, by id: whether it has finished, and the URI of its result file."""
    rows = yield Call("job_states", asked=[(job_id,) for job_id in ids])
    return {row.id: (State(row.state) in FINAL, row.result_uri) for row in rows}


@operation(read=True)
def never_due(n: int) -> Steps[list[tuple[str, str]]]:
    """(id, task) of jobs whose `run_after` is after 2199. The table refuses such times, but old rows may have them."""
    return [(row.id, row.task) for row in (yield Call("never_due", end=LAST_MOMENT, n=n))]
