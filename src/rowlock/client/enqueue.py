"""Inserts new jobs: in a transaction of their own, in the current transaction, or on the caller's connection."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from rowlock.client.database import Database
from rowlock.client.handle import Fresh, JobHandle, Result
from rowlock.client.transactions import LeaseKey, joined, joined_lease
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job, NewJob
from rowlock.store import jobs, reads
from rowlock.store.adding import NewRow
from rowlock.store.engines import foreign
from rowlock.store.engines.operation import Operation
from rowlock.store.ids import new_id


async def enqueue_one(
    app: Database, row: NewRow, new: NewJob, result: Result, connection: Any = None, under: LeaseKey | None = None
) -> JobHandle[Any]:
    """Make one job. `row` has an id only if the caller chose one; `under` is the lease of the attempt that makes it."""
    with app.sending(new, 1) as new:
        steps = _one(app, row, new, result, under, joins=connection is None)
        try:
            op = next(steps)
            while True:
                op = steps.send(await app.perform(op, connection))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def enqueue_one_sync(app: Database, row: NewRow, new: NewJob, result: Result, connection: Any = None) -> JobHandle[Any]:
    """Make one job from sync code."""
    if connection is None:
        if joined(app) is not None:
            raise InvalidArguments(
                "inside a transaction of the app, await enqueue(): its connection is not this thread's"
            )
        return app.run_sync(enqueue_one(app, row, new, result))
    with app.sending(new, 1) as new:
        steps = _one(app, row, new, result, None, joins=False)
        try:
            op = next(steps)
            while True:
                op = steps.send(foreign.run_on_sync(connection, op, app.clock))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def _one(
    app: Database, row: NewRow, new: NewJob, result: Result, under: LeaseKey | None, *, joins: bool
) -> Generator[Operation[Any], Any, JobHandle[Any]]:
    """The operations that make one job; each is run by the caller, who sends its answer in."""
    given_id, args, key, source = row
    job_id = given_id or new_id()
    if not given_id and key is None and under is None and new.batch_id is None:
        yield jobs.enqueue([(job_id, args)], new)
        app.enqueued.add(new.queue, new.task, 1)
        return JobHandle(app, job_id, (args, new, source), result)
    own = joined_lease(app) if joins else None
    if given_id:
        answer = yield jobs.enqueue_once(job_id, args, new, key, own, under)
        found, created = (answer, False) if isinstance(answer, str) else (job_id, answer)
    else:
        holders = yield jobs.enqueue_rows([NewRow(job_id, args, key, source)], new, own, under)
        found = job_id if key is None else holders[key]
        created = found == job_id
    if created:
        app.enqueued.add(new.queue, new.task, 1)
        return JobHandle(app, job_id, (args, new, source), result)
    older = yield reads.get(found)  # None if it was pruned: its id or key is still taken
    return JobHandle(app, found, older, result, created=False)


async def enqueue_many(
    app: Database, rows: list[NewRow], new: NewJob, result: Result, connection: Any = None
) -> list[JobHandle[Any]]:
    """Make many jobs that share their options, all or none, in the order given."""
    if not rows:
        return []
    with app.sending(new, len(rows)) as new:
        return await _enqueue_many(app, rows, new, result, connection)


async def _enqueue_many(
    app: Database, rows: list[NewRow], new: NewJob, result: Result, connection: Any
) -> list[JobHandle[Any]]:
    if new.unique is None and new.batch_id is None and all(row.source == new.source for row in rows):
        plain = [(new_id(), row.args) for row in rows]
        await app.perform(jobs.enqueue(plain, new), connection)
        app.enqueued.add(new.queue, new.task, len(plain))
        return [JobHandle(app, job_id, (args, new, new.source), result) for job_id, args in plain]
    written = [row._replace(id=new_id()) for row in rows]
    holders = await app.perform(jobs.enqueue_rows(written, new, joined_lease(app)), connection)
    found = [holders.get(row.key or "", row.id) if new.unique is not None else row.id for row in written]
    app.enqueued.add(new.queue, new.task, sum(row.id == job_id for row, job_id in zip(written, found, strict=True)))
    shown: dict[str, Job | Fresh] = {row.id: (row.args, new, row.source) for row in written}
    if older := sorted(set(found) - shown.keys()):
        shown |= {job.id: job for job in await app.perform(reads.by_ids(older), connection)}
    return [
        JobHandle(app, job_id, shown.get(job_id), result, created=job_id == row.id)
        for row, job_id in zip(written, found, strict=True)
    ]
