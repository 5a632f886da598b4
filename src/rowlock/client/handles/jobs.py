"""Jobs by id and by filter: read them, cancel them, put them back, ask why they do not run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rowlock.client.database import Database
from rowlock.client.handles.job import JobHandle
from rowlock.client.tasks.registry import Registry
from rowlock.core.errors import InvalidArguments, JobNotFound, NotAllowed, at_most
from rowlock.core.job import Attempt, Job
from rowlock.core.states import State
from rowlock.store.engine.ids import valid_id
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import retry as retries
from rowlock.store.read import job_rows, search
from rowlock.store.read.counts import Stats, read_stats
from rowlock.store.read.explain import Explanation, explain
from rowlock.store.read.filter import JobFilter


class Jobs(Database):
    """A database and its jobs. Inside of `transaction()`, each call is part of the transaction."""

    registry: Registry

    async def attempts(self, job_id: str) -> list[Attempt]:
        """The attempts of a job that did not succeed, in order."""
        return await self.perform(job_rows.attempts(job_id_of(job_id)))

    async def job(self, job_id: str) -> JobHandle[Any]:
        """Read one job; JobNotFound when there is none."""
        row = await self.perform(job_rows.get(job_id_of(job_id)))
        if row is None:
            raise JobNotFound(str(job_id))
        return self._shown(row)

    async def jobs(
        self,
        *,
        state: State | str | Sequence[State | str] = (),
        task: str | None = None,
        queue: str | None = None,
        owner: str | None = None,
        source: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[JobHandle[Any]]:
        """The newest jobs that fit, newest first. For the next page give the last one's id as `before`."""
        wanted = JobFilter(_states(state), task, queue, owner, source, tag, since, until)
        rows = await self.perform(search.list_jobs(wanted, at_most(limit), before))
        return [self._shown(row) for row in rows]

    async def stats(self) -> Stats:
        """Numbers of jobs for each queue, workers, and what finished in the last minutes."""
        return await self.perform(read_stats())

    async def cancel(self, job_id: str) -> str:
        """Cancel a job: `cancelled` at once when it waits, `cancelling` when it runs; a finished one is NotAllowed.
        Inside of `transaction()`, the cancel is part of the transaction."""
        answer = (await self.perform(cancels.cancel([job_id_of(job_id)], self.keep)))[job_id_of(job_id)]
        if answer == "missing":
            raise JobNotFound(str(job_id))
        if answer == "final":
            raise NotAllowed(f"job {job_id} has already finished; nothing to cancel")
        return answer

    async def retry(self, job_id: str, *, tries: int = 1) -> JobHandle[Any]:
        """Put a dead or cancelled job back with `tries` more tries; its id, attempt and history stay."""
        if not await self.perform(retries.retry([job_id_of(job_id)], tries)):
            row = await self.perform(job_rows.get(job_id_of(job_id)))
            if row is None:
                raise JobNotFound(str(job_id))
            if row.state in (State.DEAD, State.CANCELLED):
                raise NotAllowed(f"job {job_id} cannot be retried: its key is held by a newer job")
            raise NotAllowed(f"job {job_id} is {row.state}; only dead and cancelled jobs can be retried")
        return await self.job(job_id)

    async def explain(self, job_id: str) -> Explanation:
        """Why a job is not running, and what it waits for."""
        found = await self.perform(explain(job_id_of(job_id)))
        if found is None:
            raise JobNotFound(str(job_id))
        return found

    def _shown(self, row: Job) -> JobHandle[Any]:
        task = self.registry.all().get(row.task)
        return JobHandle(self, row.id, row, task.result_type if task else None, created=False)


def _states(given: State | str | Sequence[State | str]) -> tuple[State, ...]:
    try:
        return tuple(State(state) for state in ((given,) if isinstance(given, str) else given))
    except (TypeError, ValueError):
        raise InvalidArguments(f"state must be one or more of {', '.join(State)}, not {given!r}") from None


def job_id_of(text: Any) -> str:
    job_id = valid_id(str(text))
    if job_id is None:
        raise JobNotFound(str(text))
    return job_id
