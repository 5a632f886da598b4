"""Writes new jobs where they belong: on their own, in the transaction around, or on the caller's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import NewJob
from rowlock.store import foreign, jobs, reads
from rowlock.store.ids import new_id
from rowlock.store.operation import Operation
from rowlock.work.context import joined
from rowlock.work.handle import JobHandle

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.tasks import Task

T = TypeVar("T")


class Enqueuer:
    """The enqueues of one app."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app

    async def one(
        self,
        task: Task[..., Any, Any],
        text: str,
        new: NewJob,
        job_id: str | None,
        connection: Any,
        under: tuple[str, str] | None = None,
    ) -> JobHandle[Any]:
        """Make one job; under a lease when an attempt makes it."""
        if under is not None:
            fresh = new_id()
            await (await self._app.store()).run(jobs.enqueue_under(under, [(fresh, text)], new))
            return self._handle(task, fresh, text, new)
        if job_id is not None:
            created = await self._write(jobs.enqueue_once(job_id, text, new), connection)
            return (
                self._handle(task, job_id, text, new)
                if created
                else await self._met(task, job_id, text, new, connection)
            )
        fresh = new_id()
        await self._write(jobs.enqueue([(fresh, text)], new), connection)
        return self._handle(task, fresh, text, new)

    async def many(
        self, task: Task[..., Any, Any], rows: list[tuple[str, NewJob]], connection: Any
    ) -> list[JobHandle[Any]]:
        """Make many jobs, all or none, in the order given."""
        handles, grouped = [], dict[NewJob, list[tuple[str, str]]]()
        last: NewJob | None = None
        for text, new in rows:
            job_id = new_id()
            if new is not last:  # most often all share one: then it is hashed once
                members, last = grouped.setdefault(new, []), new
            members.append((job_id, text))
            handles.append(JobHandle(self._app, job_id, (text, new), task))
        groups = [(members, new) for new, members in grouped.items()]
        if groups:
            await self._write(jobs.enqueue(*groups[0]) if len(groups) == 1 else jobs.enqueue_groups(groups), connection)
        return handles

    async def _write(self, op: Operation[T], connection: Any) -> T:
        """Run an enqueue where it belongs: the caller's connection, the transaction around it, or on its own."""
        if connection is not None:
            return await foreign.run_on(connection, op, self._app.clock)
        around = joined(self._app)
        if around is not None:
            return await around.run(op)
        return await (self._app.opened_store() or await self._app.store()).run(op)

    def _handle(self, task: Task[..., Any, Any], job_id: str, text: str, new: NewJob) -> JobHandle[Any]:
        return JobHandle(self._app, job_id, (text, new), task)

    async def _met(
        self, task: Task[..., Any, Any], job_id: str, text: str, new: NewJob, connection: Any
    ) -> JobHandle[Any]:
        """The job that already has this id; its row may have been pruned, its id is still taken."""
        row = await self._write(reads.get(job_id), connection)
        return JobHandle(self._app, job_id, row or (text, new), task, created=False)

    def one_sync(
        self, task: Task[..., Any, Any], text: str, new: NewJob, job_id: str | None, connection: Any
    ) -> JobHandle[Any]:
        """Make one job from sync code."""
        if connection is None:
            if joined(self._app) is not None:
                raise InvalidArguments(
                    "inside a transaction of the app, await enqueue(): its connection is not this thread's"
                )
            return self._app.run_sync(self.one(task, text, new, job_id, None))
        fresh = job_id or new_id()
        if job_id is None:
            foreign.run_on_sync(connection, jobs.enqueue([(fresh, text)], new), self._app.clock)
            return self._handle(task, fresh, text, new)
        created = foreign.run_on_sync(connection, jobs.enqueue_once(fresh, text, new), self._app.clock)
        handle = self._handle(task, fresh, text, new)
        handle.created = created
        return handle
