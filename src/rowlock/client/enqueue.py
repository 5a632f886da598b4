"""Inserts new jobs: in a transaction of their own, in the current transaction, or on the caller's connection."""

from __future__ import annotations

from typing import Any

from rowlock.client.database import Database
from rowlock.client.handle import Fresh, JobHandle, Result
from rowlock.client.transactions import LeaseKey, joined, joined_lease
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job, NewJob
from rowlock.store import jobs, reads
from rowlock.store.adding import NewRow
from rowlock.store.engines import foreign
from rowlock.store.engines.engine import Runs
from rowlock.store.engines.operation import Operation
from rowlock.store.ids import new_id


async def enqueue_one(
    app: Database,
    row: NewRow,
    new: NewJob,
    result: Result,
    connection: Any = None,
    under: LeaseKey | None = None,
    in_span: bool = False,
) -> JobHandle[Any]:
    """Create one job. `row` has an id only if the caller chose one; `under` is the lease of the attempt that creates
    it, which must still hold. If traces are on, the enqueue is a span, which adds its traceparent to the options."""
    if app.traces is not None and not in_span:  # asked first: a `with` that does nothing takes 3 % of an enqueue
        with app.sending(new, 1) as new:
            return await enqueue_one(app, row, new, result, connection, under, in_span=True)
    place = await app.place(connection)
    if under is None and _is_plain(row, new):
        job_id = new_id()
        await place.run(jobs.enqueue([(job_id, row.args)], new))
    else:
        job_id, making = _making(row, new, joined_lease(app) if connection is None else None, under)
        found, created = _found(job_id, row.key, await place.run(making))
        if not created:
            older = await place.run(reads.get(found))  # None if it was pruned: its id or key is still taken
            return JobHandle(app, found, older, result, created=False)
    app.enqueued.add(new.queue, new.task, 1)
    return JobHandle(app, job_id, (row.args, new, row.source), result)


def enqueue_one_sync(app: Database, row: NewRow, new: NewJob, result: Result, connection: Any = None) -> JobHandle[Any]:
    """Create one job from sync code."""
    if connection is None:
        if joined(app) is not None:
            raise InvalidArguments(
                "inside a transaction of the app, await enqueue(): its connection is not this thread's"
            )
        return app.run_sync(enqueue_one(app, row, new, result))
    with app.sending(new, 1) as new:
        if _is_plain(row, new):
            job_id = new_id()
            foreign.run_on_sync(connection, jobs.enqueue([(job_id, row.args)], new), app.clock)
        else:
            job_id, making = _making(row, new, None, None)
            found, created = _found(job_id, row.key, foreign.run_on_sync(connection, making, app.clock))
            if not created:
                older = foreign.run_on_sync(connection, reads.get(found), app.clock)
                return JobHandle(app, found, older, result, created=False)
        app.enqueued.add(new.queue, new.task, 1)
        return JobHandle(app, job_id, (row.args, new, row.source), result)


def _is_plain(row: NewRow, new: NewJob) -> bool:
    """Whether an INSERT is all that a new job needs: it has no id of the caller's, no key and no batch."""
    return not row.id and row.key is None and new.batch_id is None


def _making(row: NewRow, new: NewJob, own: LeaseKey | None, under: LeaseKey | None) -> tuple[str, Operation[Any]]:
    """The id of a new job, and the operation that creates it. `own` and `under` are described at
    `jobs.enqueue_rows`."""
    job_id = row.id or new_id()
    if row.id:
        return job_id, jobs.enqueue_once(job_id, row.args, new, row.key, own, under)
    return job_id, jobs.enqueue_rows([row._replace(id=job_id)], new, own, under)


def _found(job_id: str, key: str | None, answer: Any) -> tuple[str, bool]:
    """The job that has this id or key, and whether it is new, from the answer of the operation that `_making` chose."""
    if isinstance(answer, dict):  # the holder of each key
        answer = answer.get(key, job_id)
    if isinstance(answer, str):  # the holder of the key
        return answer, answer == job_id
    return job_id, answer  # False: the id was taken


async def enqueue_many(
    app: Database, rows: list[NewRow], new: NewJob, result: Result, connection: Any = None
) -> list[JobHandle[Any]]:
    """Create many jobs that share their options, all or none, in the order given."""
    if not rows:
        return []
    with app.sending(new, len(rows)) as new:
        return await _enqueue_many(app, await app.place(connection), rows, new, result)


async def _enqueue_many(
    app: Database, place: Runs, rows: list[NewRow], new: NewJob, result: Result
) -> list[JobHandle[Any]]:
    if new.unique is None and new.batch_id is None and all(row.source == new.source for row in rows):
        alike = [(new_id(), row.args) for row in rows]
        await place.run(jobs.enqueue(alike, new))
        app.enqueued.add(new.queue, new.task, len(alike))
        return [JobHandle(app, job_id, (args, new, new.source), result) for job_id, args in alike]
    written = [row._replace(id=new_id()) for row in rows]
    holders = await place.run(jobs.enqueue_rows(written, new, joined_lease(app)))
    found = [holders.get(row.key or "", row.id) if new.unique is not None else row.id for row in written]
    app.enqueued.add(new.queue, new.task, sum(row.id == job_id for row, job_id in zip(written, found, strict=True)))
    shown: dict[str, Job | Fresh] = {row.id: (row.args, new, row.source) for row in written}
    if older := sorted(set(found) - shown.keys()):
        shown |= {job.id: job for job in await place.run(reads.by_ids(older))}
    return [
        JobHandle(app, job_id, shown.get(job_id), result, created=job_id == row.id)
        for row, job_id in zip(written, found, strict=True)
    ]
