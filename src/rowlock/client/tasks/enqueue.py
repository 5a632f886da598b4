"""Inserts new jobs: in a transaction of their own, in the current transaction, or on the caller's connection."""

from __future__ import annotations

from typing import Any

from rowlock.client.database import Database
from rowlock.client.handles.job import Fresh, JobHandle, ResultType
from rowlock.client.transactions import LeaseKey, joined, joined_lease
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job, NewJob
from rowlock.store.engine import callers_connection
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Runs
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.insert import NewRow
from rowlock.store.read import job_rows


async def enqueue_one(
    app: Database,
    row: NewRow,
    new: NewJob,
    result_type: ResultType,
    connection: Any = None,
    must_hold: LeaseKey | None = None,
    in_span: bool = False,
) -> JobHandle[Any]:
    """Create one job. `row` has an id only if the caller chose one. `must_hold` is the lease of the attempt that
    creates the job: LeaseLost is raised if that is lost. If traces are on, the enqueue is a span, which adds its
    traceparent to the options."""
    if app.traces is not None and not in_span:  # asked first: a `with` that does nothing takes 3 % of an enqueue
        with app.sending(new, 1) as new:
            return await enqueue_one(app, row, new, result_type, connection, must_hold, in_span=True)
    place = await app.place(connection)
    if must_hold is None and _is_one_insert(row, new):
        job_id = new_id()
        await place.run(enqueue.enqueue([(job_id, row.args)], new))
    else:
        lease = must_hold or (joined_lease(app) if connection is None else None)
        ((job_id, created),) = await place.run(_creation(row, new, lease, must_hold is not None))
        if not created:
            older = await place.run(job_rows.get(job_id))  # None if it was pruned: its id or key is still taken
            return JobHandle(app, job_id, older, result_type, created=False)
    app.enqueued.add(new.queue, new.task, 1)
    return JobHandle(app, job_id, (row.args, new, row.source), result_type)


def enqueue_one_sync(
    app: Database, row: NewRow, new: NewJob, result_type: ResultType, connection: Any = None
) -> JobHandle[Any]:
    """Create one job from sync code."""
    if connection is None:
        if joined(app) is not None:
            raise InvalidArguments(
                "inside a transaction of the app, await enqueue(): its connection is not this thread's"
            )
        return app.run_sync(enqueue_one(app, row, new, result_type))
    with app.sending(new, 1) as new:
        if _is_one_insert(row, new):
            job_id = new_id()
            callers_connection.run_on_sync(connection, enqueue.enqueue([(job_id, row.args)], new), app.clock)
        else:
            ((job_id, created),) = callers_connection.run_on_sync(connection, _creation(row, new), app.clock)
            if not created:
                older = callers_connection.run_on_sync(connection, job_rows.get(job_id), app.clock)
                return JobHandle(app, job_id, older, result_type, created=False)
        app.enqueued.add(new.queue, new.task, 1)
        return JobHandle(app, job_id, (row.args, new, row.source), result_type)


def _is_one_insert(row: NewRow, new: NewJob) -> bool:
    """Whether an INSERT is all that a new job needs: it has no id of the caller's, no key and no batch."""
    return not row.id and row.key is None and new.batch_id is None


def _creation(
    row: NewRow, new: NewJob, lease: LeaseKey | None = None, must_hold: bool = False
) -> Operation[list[enqueue.NewOrOlder]]:
    """The operation that creates a job for which an INSERT is not all."""
    if row.id:
        return enqueue.enqueue_once(row.id, row.args, new, row.key, lease, must_hold)
    return enqueue.enqueue_rows([row._replace(id=new_id())], new, lease, must_hold)


async def enqueue_many(
    app: Database, rows: list[NewRow], new: NewJob, result_type: ResultType, connection: Any = None
) -> list[JobHandle[Any]]:
    """Create many jobs that share their options, all or none, in the order given."""
    if not rows:
        return []
    with app.sending(new, len(rows)) as new:
        return await _enqueue_many(app, await app.place(connection), rows, new, result_type)


async def _enqueue_many(
    app: Database, place: Runs, rows: list[NewRow], new: NewJob, result_type: ResultType
) -> list[JobHandle[Any]]:
    if new.unique is None and new.batch_id is None and all(row.source == new.source for row in rows):
        alike = [(new_id(), row.args) for row in rows]
        await place.run(enqueue.enqueue(alike, new))
        app.enqueued.add(new.queue, new.task, len(alike))
        return [JobHandle(app, job_id, (args, new, new.source), result_type) for job_id, args in alike]
    rows = [row._replace(id=new_id()) for row in rows]
    found = await place.run(enqueue.enqueue_rows(rows, new, joined_lease(app)))
    app.enqueued.add(new.queue, new.task, sum(created for _, created in found))
    shown: dict[str, Job | Fresh] = {row.id: (row.args, new, row.source) for row in rows}
    if older := sorted({job_id for job_id, _ in found} - shown.keys()):
        shown |= {job.id: job for job in await place.run(job_rows.by_ids(older))}
    return [JobHandle(app, job_id, shown.get(job_id), result_type, created) for job_id, created in found]
