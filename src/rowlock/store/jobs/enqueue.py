"""Enqueue: insert new jobs, with their keys, chosen ids and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowlock.core.errors import LeaseLost
from rowlock.core.job import NewJob
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.wake import wake_idle_after_insert
from rowlock.store.jobs import keys

# What an enqueue returns for one job: an id, and True if that job is new; False if it is an older job that has the id
# or holds the key.
NewOrOlder = tuple[str, bool]


class NewRow(NamedTuple):
    """The fields that differ between the jobs of one enqueue; `NewJob` has the shared ones. If `id` is empty, the
    enqueue makes one."""

    id: str
    args: str
    key: str | None
    source: str | None


def add(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options, and wake workers."""
    if len(rows) == 1:
        yield Call("enqueue_one", id=rows[0][0], args=rows[0][1], **new.parameters)
    else:
        yield Call("enqueue", added=rows, **new.parameters)
    yield from wake_idle_after_insert()


@operation(single=True, enqueues=True, hot=True, size=lambda rows, new: len(rows))
def enqueue(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options and have neither a key nor a batch."""
    yield from add(rows, new)


@operation(enqueues=True)
def enqueue_rows(
    rows: Sequence[NewRow], new: NewJob, lease: tuple[str, str] | None = None, must_hold: bool = False
) -> Steps[list[NewOrOlder]]:
    """Insert jobs with keys, in a batch, or with different sources. If an attempt enqueues them, `lease` is its lease,
    which lets it add jobs to its own sealed batch. `must_hold` raises LeaseLost if that lease is gone; an attempt that
    enqueues in its own transaction doesn't need this check, because its success is written under the lease."""
    if must_hold and lease is not None:
        yield from _check_held(lease)
    return (yield from _insert(rows, new, lease))


def _insert(rows: Sequence[NewRow], new: NewJob, lease: tuple[str, str] | None) -> Steps[list[NewOrOlder]]:
    """Take the keys of these jobs and insert the jobs that got theirs. If two jobs have one key, the first gets it."""
    fresh, found = rows, [row.id for row in rows]
    if new.unique is not None:
        first: dict[str, str] = {}
        for row in rows:
            first.setdefault(row.key or "", row.id)
        scope = keys.scope_of(new.task, new.owner)
        holders = yield from keys.take_keys(scope, list(first.items()), new.unique, new.window)
        found = [holders[row.key or ""] for row in rows]
        fresh = [row for row, job_id in zip(rows, found, strict=True) if row.id == job_id]
    if fresh:
        if new.batch_id is not None:
            yield from batches.join(new.batch_id, len(fresh), lease)
        yield Call("enqueue_rows", added=fresh, **new.parameters)
        yield from wake_idle_after_insert()
    return [(job_id, job_id == row.id) for row, job_id in zip(rows, found, strict=True)]


@operation(enqueues=True)
def enqueue_once(
    job_id: str,
    args: str,
    new: NewJob,
    key: str | None = None,
    lease: tuple[str, str] | None = None,
    must_hold: bool = False,
) -> Steps[list[NewOrOlder]]:
    """Insert a job under an id that the client chose, unless a job has or had that id. Else like `enqueue_rows`."""
    if must_hold and lease is not None:
        yield from _check_held(lease)
    taken = yield Call("take_id", job_id=job_id)
    if not taken or (yield Call("known_id", job_id=job_id)):
        return [(job_id, False)]
    ((found, created),) = yield from _insert([NewRow(job_id, args, key, new.source)], new, lease)
    if not created:
        yield Call("give_id_back", key=job_id)
    return [(found, created)]


def _check_held(lease: tuple[str, str]) -> Steps[None]:
    """Raise LeaseLost if this lease is gone: an attempt that has lost its job must not create jobs."""
    if not (yield Call("lock_held", mine=[lease])):
        raise LeaseLost(f"job {lease[0]} is no longer held by this attempt; its child job was not enqueued", *lease)
