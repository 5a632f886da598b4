"""A job claimed by hand: for programs that have a loop of their own, and for looking after single jobs."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments, JobNotFound, LeaseLost, NotAllowed
from rowlock.core.job import MAX_RESULT_BYTES, Claimed, Settlement
from rowlock.core.outcome import AttemptEnd, Failed, Released, Succeeded, TimedOut
from rowlock.core.policy import decide
from rowlock.core.schedule import span
from rowlock.core.states import FINAL, State
from rowlock.store import batches, jobs, reads
from rowlock.store.follow_ups import follow_ups
from rowlock.store.ids import new_token
from rowlock.store.stored_json import parsed
from rowlock.work import options
from rowlock.work.arguments import to_json
from rowlock.work.errors import CODE_LIMIT, clean
from rowlock.work.pool import worker_id

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock


async def claim_by_hand(app: Rowlock, job_id: str, worker: str | None, lease: float | timedelta | None) -> Lease | None:
    """See `Rowlock.claim`."""
    seconds = span(app.settings.worker.lease_seconds if lease is None else lease, "lease_seconds")
    if seconds <= 0:
        raise InvalidArguments(f"lease_seconds must be above 0, not {lease!r}")
    name = worker_id() if worker is None else options.name(worker, "worker")
    store = await app.store()
    claimed = await store.run(jobs.claim_one(job_id, name, new_token(), seconds))
    if claimed is not None:
        return Lease(app, claimed, seconds)
    row = await store.run(reads.get(job_id))
    if row is None:
        raise JobNotFound(job_id)
    if row.source is not None and row.state in (State.QUEUED, State.RETRYABLE):
        raise NotAllowed(f"job {job_id} has the source {row.source}, whose limits only workers keep")
    return None


class Lease:
    """The right to one job, until it is settled or runs out. A worker would beat it; here that is for the caller to do,
    more often than every `lease_seconds`. Every method raises LeaseLost once the job is somebody else's."""

    def __init__(self, app: Rowlock, job: Claimed, seconds: float) -> None:
        self._app, self._job, self._seconds = app, job, seconds
        self.job_id, self.task, self.queue, self.owner = job.id, job.task, job.queue, job.owner
        self.attempt, self.max_attempts, self.worker, self.token = job.attempt, job.max_attempts, job.worker, job.token
        self.timeout_seconds = job.timeout_seconds
        self.args: dict[str, Any] = parsed(job.args)[0]  # text, if it is no JSON
        self._over = False

    async def beat(self) -> None:
        """Hold it for `lease_seconds` from now on."""
        if not await (await self._app.store()).run(jobs.beat_waiting(self.job_id, self.token, self._seconds)):
            raise LeaseLost(f"job {self.job_id} is no longer held by this attempt")

    async def complete(self, result: Any = None) -> State:
        """It is done."""
        what = f"the result of {self.task!r}"
        return await self._settle(Succeeded(None if result is None else to_json(result, what, MAX_RESULT_BYTES)))

    async def fail(self, message: str, *, code: str = "FAILED", permanent: bool = False) -> State:
        """It failed: tried again after its backoff while tries are left, else dead. Answers its new state."""
        return await self._settle(Failed(clean(str(code), CODE_LIMIT), clean(str(message)), permanent=permanent))

    async def time_out(self) -> State:
        """It took longer than it may; else like `fail`."""
        return await self._settle(TimedOut(self.timeout_seconds or self._seconds))

    async def release(self, after: float | timedelta = 0.0) -> State:
        """Give it back unharmed: no try is used up."""
        return await self._settle(Released(span(after, "after")))

    async def _settle(self, end: AttemptEnd) -> State:
        if self._over:  # the database would say `duplicate`: it is this very lease that settled it, but otherwise
            raise LeaseLost(f"job {self.job_id} is settled already")
        transition = decide(self._job, end, random.random())
        settlement = Settlement(self.job_id, self.token, transition, follow_ups(self._job, transition))
        store = await self._app.store()
        answer = (await store.run(jobs.settle([settlement], self._app.keep)))[self.job_id]
        if answer == "lost":
            raise LeaseLost(f"job {self.job_id} is no longer held by this attempt")
        self._over = True
        if self._job.batch_id is not None and transition.state in FINAL:
            complete = await store.run(batches.complete([self._job.batch_id]))
            await store.run(batches.end(complete))
        return (await self._app.job(self.job_id)).state  # not the transition's: a cancel may have come first
