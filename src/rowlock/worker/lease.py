"""`app.claim(job_id)`: the lease of one job, claimed and settled by a program that isn't a worker."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

from rowlock.client.client import Client
from rowlock.client.tasks.arguments import to_json
from rowlock.client.transactions import joined
from rowlock.core import option_checks
from rowlock.core.error_text import CODE_LIMIT, clean
from rowlock.core.errors import (
    InvalidArguments,
    JobNotFound,
    LeaseLost,
    NotAllowed,
    RowlockError,
    StoreUnavailable,
    TaskNotFound,
)
from rowlock.core.job import MAX_RESULT_BYTES, Claimed, Settlement
from rowlock.core.outcome import AttemptEnd, Failed, Released, Succeeded, TimedOut
from rowlock.core.policy import decide
from rowlock.core.schedules.schedule import span
from rowlock.core.states import State
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.ids import new_token
from rowlock.store.engine.records import parsed
from rowlock.store.jobs import claim, leases, settle
from rowlock.store.read import job_rows
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.loops import to_the_end
from rowlock.worker.pool import WorkerPool
from rowlock.worker.registration import worker_id

RUN_LOOK_SECONDS = 0.01
GIVE_BACK_SECONDS = 2.0


async def claim_by_hand(app: Client, job_id: str, worker: str | None, lease: float | timedelta | None) -> Lease | None:
    """See `Rowlock.claim`."""
    seconds = span(app.settings.worker.lease_seconds if lease is None else lease, "lease_seconds")
    if seconds <= 0:
        raise InvalidArguments(f"lease_seconds must be above 0, not {lease!r}")
    name = worker_id() if worker is None else option_checks.name(worker, "worker")
    store, token, sent = await app.store(), new_token(), boottime()
    try:
        claimed = await store.run(claim.claim_one(job_id, name, token, seconds))
    except (StoreUnavailable, asyncio.CancelledError) as error:
        if getattr(error, "may_have_happened", True):
            await _give_back(app, name, token, seconds)
        raise
    if claimed is not None:
        return Lease(app, claimed, seconds, sent)
    row = await store.run(job_rows.get(job_id))
    if row is None:
        raise JobNotFound(job_id)
    if row.source is not None and row.state in (State.QUEUED, State.RETRYABLE):
        raise NotAllowed(f"job {job_id} has the source {row.source}, whose limits only workers enforce")
    return None


async def _give_back(app: Client, worker: str, token: str, seconds: float) -> None:
    """Release the job of a claim whose reply was lost. If that fails, the job waits until its lease runs out."""
    with suppress(RowlockError, TimeoutError):
        async with asyncio.timeout(GIVE_BACK_SECONDS):
            for job in await (await app.store()).run(claim.adopt(worker, token)):
                await Lease(app, job, seconds, boottime()).release()


class Lease:
    """The lease of one job that `app.claim` claimed, until it is settled or runs out. No heartbeats are sent for it:
    call `beat` more often than every `lease_seconds`, or `run`, which does. Every method raises LeaseLost once another
    worker may have the job."""

    def __init__(self, app: Client, job: Claimed, seconds: float, renewed: float) -> None:
        self._app, self._job, self._seconds, self._renewed = app, job, seconds, renewed
        self.job_id, self.task, self.queue, self.owner = job.id, job.task, job.queue, job.owner
        self.attempt, self.max_attempts, self.worker, self.token = job.attempt, job.max_attempts, job.worker, job.token
        self.timeout_seconds = job.timeout_seconds
        self.args: dict[str, Any] = parsed(job.args)[0]  # a str if another program stored text that isn't JSON
        self._over = False

    async def beat(self) -> None:
        """Renew the lease for `lease_seconds` from now on."""
        sent = boottime()
        if not await (await self._app.store()).run(leases.beat_waiting(self.job_id, self.token, self._seconds)):
            raise self._lost("is no longer held by this attempt")
        self._renewed = sent

    async def run(self) -> State:
        """Run the job's task here as a worker would, with heartbeats, context, timeout and settlement; returns the
        job's new state. Raises TaskNotFound if this program has not registered the task. In that case, and if the
        caller is cancelled, the job is released, which doesn't count as a try."""
        if self._over:
            raise self._lost("is settled already")
        if joined(self._app) is not None:
            raise InvalidArguments("lease.run() cannot be part of your transaction: call it before or after the block")
        try:
            self._app.registry.get(self.task)
        except TaskNotFound:  # another program may have it
            await self.release()
            raise
        pool = await self._pool()
        running: LiveAttempt | None = None
        try:
            pool.executor.start([self._job], self._renewed)
            running = pool.running.get(self.job_id)
            while pool.running:
                await asyncio.sleep(RUN_LOOK_SECONDS)
        except asyncio.CancelledError:
            await to_the_end(pool.stop(0))
            raise
        await to_the_end(pool.stop())
        if pool.stale_refused or (running is not None and running.reason == "lost"):
            raise self._lost("is no longer held by this attempt")
        return (await self._app.job(self.job_id)).state

    async def _pool(self) -> WorkerPool:
        """Start a worker for this job alone. If the start fails, the caller keeps the lease; if it is cancelled, the
        job is released."""
        beat = min(self._app.settings.worker.heartbeat_seconds, self._seconds / 4)
        pool = WorkerPool(self._app, pool_size=1, lease_seconds=self._seconds, heartbeat_seconds=beat)
        pool.id = self.worker
        self._over = True  # from here on the worker settles the job
        try:
            await self.beat()  # raises LeaseLost if the lease is lost already
            await pool.start(claims=False)
        except BaseException as error:  # the task has not run
            self._over = False
            if isinstance(error, asyncio.CancelledError):
                with suppress(RowlockError):
                    await to_the_end(self.release())
            raise
        return pool

    async def complete(self, result: Any = None) -> State:
        """The job succeeded. Returns its new state."""
        what = f"the result of {self.task!r}"
        return await self._settle(Succeeded(None if result is None else to_json(result, what, MAX_RESULT_BYTES)))

    async def fail(self, message: str, *, code: str = "FAILED", permanent: bool = False) -> State:
        """The attempt failed: the job is retried after its backoff or, without tries left, becomes dead. Returns its
        new state."""
        return await self._settle(Failed(clean(str(code), CODE_LIMIT), clean(str(message)), permanent=permanent))

    async def time_out(self) -> State:
        """The attempt exceeded the job's timeout. The job is retried or becomes dead, as with `fail`."""
        return await self._settle(TimedOut(self.timeout_seconds or self._seconds))

    async def release(self, after: float | timedelta = 0.0) -> State:
        """Put the job back in the queue, claimable after this delay. Doesn't count as a try."""
        return await self._settle(Released(span(after, "after")))

    async def _settle(self, end: AttemptEnd) -> State:
        if self._over:  # the database would answer `duplicate` even if this outcome differs from the first
            raise self._lost("is settled already")
        transition = decide(self._job, end, random.random())
        answers = await settle.settle(await self._app.store(), [Settlement(self._job, transition)], self._app.keep)
        if answers[self.job_id] == "lost":
            raise self._lost("is no longer held by this attempt")
        self._over = True
        return (await self._app.job(self.job_id)).state  # not the transition's state: a cancel may have come first

    def _lost(self, why: str) -> LeaseLost:
        return LeaseLost(f"job {self.job_id} {why}", self.job_id, self.token)
