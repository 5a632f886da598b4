"""WorkerPool: claim what there is room for, run it in slots, settle it, and stop without losing any of it.

The fill loop claims free slots plus an adaptive prefetch (what this worker finished in the last 100 ms), so that slow
work is never hoarded and fast work never waits for a round trip. A claim that comes back short means the queue is
empty: the worker then says so in its row, looks once more (work may have come in between) and sleeps until it is woken,
a delayed job is due, or the poll interval has passed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StorageFull, StoreError, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.core.outcome import Cancelled, Released, TimedOut
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.events.logs import JobLog
from rowlock.store import jobs, workers
from rowlock.store.engine import Bell, Store
from rowlock.store.ids import new_token
from rowlock.work.executor import Executor
from rowlock.work.heartbeat import Heart, Hold, boottime
from rowlock.work.lanes import LaneBook
from rowlock.work.loops import Loops
from rowlock.work.processes import Children, Quarantine
from rowlock.work.progress import ProgressBook
from rowlock.work.running import Running
from rowlock.work.settler import Settler
from rowlock.work.sweeper import Sweeper
from rowlock.work.version import VERSION

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

log = logging.getLogger("rowlock.worker")

PREFETCH_SECONDS = 0.1
PROMOTE_SECONDS = 0.2
PROMOTE_BATCH = 1000
BUSY_SECONDS = 1.0  # a worker that had no room for this long stops asking to be woken
SECOND_CANCEL_SECONDS = 2.0
GIVE_UP_SECONDS = 5.0


def worker_id() -> str:
    """Unique for every start of a worker: {hostname}-{pid}-{ms}-{random}."""
    return f"{socket.gethostname()}-{os.getpid()}-{int(time.time() * 1000)}-{secrets.token_hex(3)}"


class WorkerPool:
    """One worker: N slots, its leases, its loops."""

    def __init__(self, app: Rowlock, config: Mapping[str, Any] | None = None, **changes: Any) -> None:
        merged = app.settings.worker.model_dump() | dict(config or {}) | changes
        self.settings = WorkerSettings.model_validate(merged)
        self.app, self.id = app, os.environ.get("WORKER_ID") or worker_id()
        self.stale_refused = 0  # writes that came too late and changed nothing
        self.reclaimed = 0
        self.running: dict[str, Running] = {}
        self.stopping = False
        self._occupied = 0  # slots with an attempt that has not returned
        self._buffer: deque[Running] = deque()
        self._wake = asyncio.Event()
        self._exits = AsyncExitStack()
        self._finished: deque[float] = deque()
        self._alone = 0
        self._hungry = False
        self._full_since: float | None = None
        self._promote_at = 0.0
        self._stirred = True
        self._lost_claims: list[str] = []
        self._deadline = 0.0
        self._promoted = -1.0
        self._prefetch = 0
        self._store: Store
        self._bell: Bell | None = None

    # --- start and stop

    async def start(self) -> None:
        """Open everything and begin to work."""
        settings, app = self.settings, self.app
        self._store = await app.store()
        self.log = JobLog(self.id)
        resources = await self._open_resources()
        names = sorted(app.registry.all())
        self._prompt = LaneBook(settings.queues, [name for name in names if self._may_prefetch(name)])
        self._every = LaneBook(settings.queues, names)
        self._slow = LaneBook(settings.queues, [name for name in names if not self._may_prefetch(name)])
        self.heart = Heart(
            app,
            self.id,
            beat=settings.heartbeat_seconds,
            lease=settings.lease_seconds,
            on_lost=self._on_lost,
            on_cancel=self._on_cancel,
            on_fence=self._on_fence,
            running=lambda: self._occupied,
            names=lambda: ", ".join(sorted({r.job.task for r in list(self.running.values()) if r.task})) or "none",
        )
        self.settler = Settler(self._store, app.keep, self._answered, self._wake.set)
        self.progress = ProgressBook(self._store, self._on_lost)
        self._threads = ThreadPoolExecutor(settings.pool_size, thread_name_prefix="rowlock-slot")
        self._children = Children(app, settings.pool_size)
        self._quarantine = Quarantine(app, self.alone)
        self.executor = Executor(
            app,
            self.settler,
            threads=self._threads,
            children=self._children,
            quarantine=self._quarantine,
            resources=resources,
            report=self.progress.reporter,
            settled=self._settled_by_itself,
            overrun=lambda running: self._stop_running(running, "timeout"),
        )
        self._bell = await self._store.listen(self._heard) if settings.wakeups else None
        await self._register(names)
        self.heart.start()
        self.settler.start()
        self.sweeper = Sweeper(self._store, settings, app.keep, self._on_reclaimed)
        self._loops = Loops()
        self._loops.start("fill", self._poll_and_assign)
        self._loops.start("sweep", self.sweeper.round)
        self._loops.start("tidy", self.sweeper.tidy)
        log.info("Worker started: %s", self.id, extra={"queues": settings.queues, "pool_size": settings.pool_size})

    async def _open_resources(self) -> dict[str, Any]:
        resources: dict[str, Any] = {}
        for lifespan in self.app.lifespans:
            resources |= await self._exits.enter_async_context(asynccontextmanager(lifespan)())
        return resources

    def _may_prefetch(self, name: str) -> bool:
        options = self.app.registry.get(name).options
        return options.source is None and options.runs_in != "process"

    async def _register(self, names: list[str]) -> None:
        bell = self._bell.address if self._bell else None
        queues, lease = self.settings.queues, self.settings.lease_seconds
        await self._store.run(
            workers.register(
                self.id,
                socket.gethostname(),
                os.getpid(),
                VERSION,
                queues,
                names,
                self.settings.pool_size,
                bell,
                lease,
            )
        )

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what runs, or give it back without using up a try; nothing is lost either way."""
        grace = self.settings.shutdown_timeout_seconds if timeout is None else timeout
        self.stopping = True
        self._wake.set()
        await self._loops.stop("fill")
        self.give_back_waiting()
        self._deadline = time.monotonic() + grace
        while self._occupied and time.monotonic() < self._deadline:
            await asyncio.sleep(0.02)
        self.give_back_now()
        late = time.monotonic() + GIVE_UP_SECONDS + 1
        while self._occupied and time.monotonic() < late and any(not r.abandoned for r in self.running.values()):
            await asyncio.sleep(0.02)
        await self.settler.drain(max(2.0, self.settings.lease_seconds - self.settings.heartbeat_seconds))
        await self._close()

    def hurry(self) -> None:
        """End the grace of a stop that is under way."""
        self._deadline = time.monotonic()

    def give_back_waiting(self) -> None:
        """Claimed but not started: back to the queue, unharmed."""
        while self._buffer:
            running = self._buffer.popleft()
            running.ended = True
            self.executor.settle(running, Released(random.random(), "shutdown"))

    def give_back_now(self) -> None:
        """End the grace: everything that still runs is told to stop and given back."""
        for running in list(self.running.values()):
            if running.task is not None and not running.ended:
                self._stop_running(running, "shutdown")

    async def _close(self) -> None:
        await self._loops.stop_all()
        await self.progress.stop()
        await self.heart.stop()
        await self.settler.stop()
        await self._children.close()
        await self._quarantine.close()
        if self._bell:
            await self._bell.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.log.summarise(force=True)
        try:
            await self._store.run(workers.remove(self.id))
        except StoreError as error:
            log.warning("could not sign off: %s", error)
        await self._exits.aclose()
        log.info("Worker stopped: %s", self.id)

    async def join(self) -> None:
        """Wait for ever; raises if one of the worker's loops has died, so that a supervisor can restart it."""
        await self._loops.join()

    # --- filling the slots

    async def _poll_and_assign(self) -> float:
        """One round: make due jobs claimable, claim for the room there is, start them. Returns the next delay."""
        if self.stopping or self._alone:
            return await self._sleep(0.05)
        try:
            due = await self._promote()
            room = self._room()
            if room <= 0 or self.settler.backlog > 4 * self.settings.claim_batch_size:
                await self._stop_asking()
                return await self._sleep(min(due, PROMOTE_SECONDS))
            claimed = await self._claim(room)
            if len(claimed) >= room:
                return 0.0
            if not self._hungry:
                await self._ask_to_be_woken()
                return 0.0  # look once more: work may have come before the flag was seen
        except StorageFull as error:
            log.error("claims have stopped: %s", error)
            return await self._sleep(2.0)
        return await self._sleep(min(due, self.settings.poll_interval_seconds * random.uniform(0.9, 1.0)))

    def _room(self) -> int:
        """Free slots plus what this worker has lately finished in 100 ms, less what waits here already."""
        free = self.settings.pool_size - self._occupied - len(self._buffer)
        horizon = time.monotonic() - PREFETCH_SECONDS
        while self._finished and self._finished[0] < horizon:
            self._finished.popleft()
        self._prefetch = len(self._finished)
        if self._prefetch and len(self._buffer) > self._prefetch // 2:
            return 0  # enough for now; many small claims would cost more than they bring
        return min(free + self._prefetch, self.settings.claim_batch_size)

    async def _claim(self, room: int) -> list[Claimed]:
        await self._adopt_lost_claims()
        if not self._prefetch:
            return await self._claim_from(self._every, room)
        # Sourced and process tasks are never hoarded: they are claimed for free slots only.
        free = self.settings.pool_size - self._occupied - len(self._buffer)
        claimed = await self._claim_from(self._slow, free) if free > 0 else []
        return claimed + await self._claim_from(self._prompt, room - len(claimed))

    async def _claim_from(self, book: LaneBook, n: int) -> list[Claimed]:
        lanes = book.lanes()
        if not lanes or n <= 0:
            return []
        token, sent = new_token(), boottime()
        try:
            claimed = await self._store.run(jobs.claim(self.id, token, lanes, n, self.settings.lease_seconds))
        except StoreUnavailable:
            self._lost_claims.append(token)  # it may have happened: ask for it when the database is back
            raise
        book.learn(claimed, n)
        self._take(claimed, sent)
        return claimed

    async def _adopt_lost_claims(self) -> None:
        while self._lost_claims:
            sent = boottime()
            self._take(await self._store.run(jobs.adopt(self.id, self._lost_claims[0])), sent)
            self._lost_claims.pop(0)

    def _take(self, claimed: list[Claimed], sent: float) -> None:
        if not claimed:
            return
        self._stirred = True
        self.log.claimed(claimed)
        holds, running, buffer = self.heart.holds, self.running, self._buffer
        for job in claimed:
            holds[job.id] = Hold(job.token, sent)
            attempt = Running(job)
            running[job.id] = attempt
            buffer.append(attempt)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start buffered attempts while there are slots."""
        buffer, size = self._buffer, self.settings.pool_size
        create_task, execute = asyncio.get_running_loop().create_task, self.executor.execute
        while buffer and self._occupied < size and not self.stopping:
            attempt = buffer.popleft()
            if attempt.ended:
                continue
            self._occupied += 1
            attempt.started = time.monotonic()
            attempt.task = create_task(execute(attempt))
            attempt.task.add_done_callback(self._returned)

    def _returned(self, task: asyncio.Task[Any]) -> None:
        """An attempt has returned: its slot is free, whether or not its outcome is written yet."""
        self._occupied -= 1
        self._finished.append(time.monotonic())
        if self._buffer:
            self._start_waiting()
        if len(self._buffer) * 2 <= len(self._finished) or not self._buffer:
            self._wake.set()

    # --- waking and sleeping

    async def _sleep(self, delay: float) -> float:
        """Sleep until woken, at most `delay`. Returns 0: the next round may begin."""
        self.log.summarise()
        if delay > 0 and not self._wake.is_set():
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()
        return 0.0

    def _heard(self, what: str) -> None:
        if what == "work":
            self._stirred = True
            self._wake.set()
        elif what in ("cancel", f"cancel:{self.id}"):
            self._loops.spawn(self._look_for_cancels())

    async def _look_for_cancels(self) -> None:
        held = await self._store.run(jobs.held([(r.job.id, r.job.token) for r in list(self.running.values())]))
        self._on_cancel([job_id for job_id, cancel in held.items() if cancel])

    async def _promote(self) -> float:
        """Make due jobs claimable when it is time to; returns the seconds until it is time again."""
        now = time.monotonic()
        at = min(self._promote_at, self._promoted + PROMOTE_SECONDS) if self._stirred else self._promote_at
        if now < at:
            return at - now
        self._stirred = False
        count, due = await self._store.run(jobs.promote(PROMOTE_BATCH))
        self._promoted = time.monotonic()
        idle = self.settings.poll_interval_seconds if self._hungry else PROMOTE_SECONDS
        wait = 0.0 if count == PROMOTE_BATCH else min(idle, max(0.0, due) if due is not None else idle)
        self._promote_at = self._promoted + wait
        return wait

    async def _ask_to_be_woken(self) -> None:
        self._hungry, self._full_since = True, None
        if self._bell is not None:
            lease = self.settings.lease_seconds
            if not await self._store.run(workers.set_idle(self.id, True, lease)):
                await self._register(sorted(self.app.registry.all()))
                await self._store.run(workers.set_idle(self.id, True, lease))

    async def _stop_asking(self) -> None:
        """Full for a while: let enqueues go without the cost of waking this worker."""
        now = time.monotonic()
        if not self._hungry:
            return
        if self._full_since is None:
            self._full_since = now
        elif now - self._full_since > BUSY_SECONDS:
            self._hungry, self._full_since = False, None
            if self._bell is not None:
                await self._store.run(workers.set_idle(self.id, False, self.settings.lease_seconds))

    # --- what becomes of attempts

    def _answered(self, running: Running, transition: Transition, answer: jobs.Answer) -> None:
        """An outcome was written (or refused)."""
        job = running.job
        self._forget(running)
        if answer == "lost":
            self.stale_refused += 1
            log.warning("Job %s: a late %s was refused; the lease was lost", job.id, transition.outcome)
        elif transition.state is State.SUCCEEDED:
            self.log.succeeded(job, time.monotonic() - running.started)
        else:
            self.log.ended(job, transition, time.monotonic() - running.started)
            if transition.state in (State.QUEUED, State.RETRYABLE):
                self._stirred = True
                self._wake.set()

    def _settled_by_itself(self, running: Running) -> None:
        """The attempt's own transaction has settled it, or it has no lease any more."""
        self._forget(running)
        if running.reason == "lost":
            self.stale_refused += 1
        else:
            self.log.succeeded(running.job, time.monotonic() - running.started)

    def _forget(self, running: Running) -> None:
        job_id = running.job.id
        if self.running.get(job_id) is running:
            del self.running[job_id]
            self.heart.holds.pop(job_id, None)

    def _on_lost(self, ids: list[str]) -> None:
        for running in self._of(ids):
            log.warning("Job %s: the lease was lost; its attempt is stopped", running.job.id)
            self._stop_running(running, "lost")
            self._forget(running)

    def _on_cancel(self, ids: list[str]) -> None:
        for running in self._of(ids):
            if running.reason not in ("cancel", "lost"):
                self._stop_running(running, "cancel")

    def _on_fence(self, ids: list[str]) -> None:
        for running in self._of(ids):
            log.warning(
                "Job %s: no beat for too long; its attempt is stopped before the lease runs out",
                running.job.id,
            )
            self._stop_running(running, "fenced")

    def _of(self, ids: list[str]) -> list[Running]:
        found = [self.running[job_id] for job_id in ids if job_id in self.running]
        return [running for running in found if not running.ended]

    def _stop_running(self, running: Running, reason: str) -> None:
        """Ask, ask again, and at last write the outcome without the attempt."""
        if running.task is None:
            running.ended = True
            if reason != "lost":
                self.executor.settle(running, Cancelled() if reason == "cancel" else Released(random.random(), reason))
            return
        running.stop(reason)
        loop = asyncio.get_running_loop()
        loop.call_later(SECOND_CANCEL_SECONDS, self._ask_again, running)
        loop.call_later(GIVE_UP_SECONDS, self._give_up, running)

    def _ask_again(self, running: Running) -> None:
        if not running.ended and not running.abandoned:
            log.warning("Job %s (%s) ignores being stopped (%s)", running.job.id, running.job.task, running.reason)
            running.stop(running.reason or "shutdown")

    def _give_up(self, running: Running) -> None:
        if running.ended or running.abandoned or running.reason is None:
            return
        if running.blocking and running.reason == "timeout":
            return  # a thread keeps its lease until it returns, so that no second attempt runs beside it
        running.abandoned = True
        match running.reason:
            case "cancel":
                self.executor.settle(running, Cancelled())
            case "timeout":
                self.executor.settle(running, TimedOut(running.job.timeout_seconds or 0.0))
            case "shutdown" | "fenced":
                self.executor.settle(running, Released(random.random(), running.reason))

    def _on_reclaimed(self, reclaimed: list[jobs.Reclaimed]) -> None:
        self.reclaimed += len(reclaimed)
        for job, transition in reclaimed:
            log.warning("Job %s reclaimed from %s, now %s", job.id, job.worker, transition.state)
        self._stirred = True
        self._wake.set()

    @asynccontextmanager
    async def alone(self, running: Running) -> AsyncIterator[None]:
        """Run with no other attempt beside: filling stops, and what runs is waited for."""
        self._alone += 1
        try:
            while self._occupied > 1:
                await asyncio.sleep(0.02)
            yield
        finally:
            self._alone -= 1
            self._wake.set()
