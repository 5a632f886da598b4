"""Writes new jobs where they belong: on their own, in the transaction around, or on the caller's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job, NewJob
from rowlock.store import foreign, jobs, reads
from rowlock.store.adding import NewRow
from rowlock.store.ids import new_id
from rowlock.store.operation import Operation
from rowlock.work.handle import Fresh, JobHandle
from rowlock.work.transactions import joined, joined_lease

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.tasks import Task

T = TypeVar("T")
Lease = tuple[str, str]


class Wanted(NamedTuple):
    """One job to be made: arguments, options, and what it has for itself."""

    text: str
    new: NewJob
    key: str | None = None
    job_id: str | None = None


class Enqueuer:
    """The enqueues of one app."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app

    async def one(
        self, task: Task[..., Any, Any], wanted: Wanted, connection: Any, under: Lease | None = None
    ) -> JobHandle[Any]:
        """Make one job; under a lease when an attempt makes it."""
        text, new, key, job_id = wanted
        if under is None and job_id is None and key is None and new.batch_id is None:
            fresh = new_id()
            await self.write(jobs.enqueue([(fresh, text)], new), connection)
            return JobHandle(self._app, fresh, (text, new, new.source), task)
        row = NewRow(job_id or new_id(), text, key, new.source)
        answer = await self.write(_one(row, wanted, joined_lease(self._app), under), connection)
        found, created = _found(row, answer)
        if created:
            return JobHandle(self._app, found, (text, new, new.source), task)
        older = await self.write(reads.get(found), connection)  # none if it was pruned: the id or key is still taken
        return JobHandle(self._app, found, older, task, created=False)

    async def many(
        self, task: Task[..., Any, Any], rows: list[NewRow], new: NewJob, connection: Any
    ) -> list[JobHandle[Any]]:
        """Make many jobs that share their options, all or none, in the order given."""
        app = self._app
        if not rows:
            return []
        if new.unique is None and new.batch_id is None and all(row.source == new.source for row in rows):
            plain = [(new_id(), row.args) for row in rows]
            await self.write(jobs.enqueue(plain, new), connection)
            return [JobHandle(app, job_id, (args, new, new.source), task) for job_id, args in plain]
        written = [row._replace(id=new_id()) for row in rows]
        holders = await self.write(jobs.enqueue_rows(written, new, joined_lease(app)), connection)
        found = [holders.get(row.key or "", row.id) if new.unique is not None else row.id for row in written]
        shown: dict[str, Job | Fresh] = {row.id: (row.args, new, row.source) for row in written}
        if older := sorted(set(found) - shown.keys()):
            shown |= {job.id: job for job in await self.write(reads.by_ids(older), connection)}
        return [
            JobHandle(app, job_id, shown.get(job_id), task, created=job_id == row.id)
            for row, job_id in zip(written, found, strict=True)
        ]

    async def write(self, op: Operation[T], connection: Any = None) -> T:
        """Run an operation where it belongs: the caller's connection, the transaction around it, or on its own."""
        if connection is not None:
            return await foreign.run_on(connection, op, self._app.clock)
        around = joined(self._app)
        if around is not None:
            return await around.run(op)
        return await (self._app.opened_store() or await self._app.store()).run(op)

    def one_sync(self, task: Task[..., Any, Any], wanted: Wanted, connection: Any) -> JobHandle[Any]:
        """Make one job from sync code."""
        if connection is None:
            if joined(self._app) is not None:
                raise InvalidArguments(
                    "inside a transaction of the app, await enqueue(): its connection is not this thread's"
                )
            return self._app.run_sync(self.one(task, wanted, None))
        text, new, key, job_id = wanted
        row = NewRow(job_id or new_id(), text, key, new.source)
        if job_id is None and key is None and new.batch_id is None:
            foreign.run_on_sync(connection, jobs.enqueue([row[:2]], new), self._app.clock)
            return JobHandle(self._app, row.id, (text, new, new.source), task)
        found, created = _found(row, foreign.run_on_sync(connection, _one(row, wanted, None, None), self._app.clock))
        if created:
            return JobHandle(self._app, found, (text, new, new.source), task)
        older = foreign.run_on_sync(connection, reads.get(found), self._app.clock)
        return JobHandle(self._app, found, older, task, created=False)


def _one(row: NewRow, wanted: Wanted, own: Lease | None, under: Lease | None) -> Operation[Any]:
    if wanted.job_id is not None:
        return jobs.enqueue_once(row.id, row.args, wanted.new, row.key, own, under)
    return jobs.enqueue_rows([row], wanted.new, own, under)


def _found(row: NewRow, answer: dict[str, str] | bool | str) -> tuple[str, bool]:
    """The job that stands for `row`, and whether it is new."""
    if isinstance(answer, dict):
        found = row.id if row.key is None else answer[row.key]
        return found, found == row.id
    return (answer, False) if isinstance(answer, str) else (row.id, answer)
