"""WorkerPool: one worker. N slots, the leases of what is in them, and the loops that keep both going."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from rowlock.core.config import change_worker
from rowlock.core.errors import NotAllowed, StoreError
from rowlock.core.job import Claimed
from rowlock.core.outcome import Released
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.events.logs import JobLog
from rowlock.store import batches, jobs, retention, workers
from rowlock.store.engine import Bell, Store
from rowlock.work.executor import Executor
from rowlock.work.filler import Filler
from rowlock.work.heartbeat import Heart
from rowlock.work.lookout import Lookout
from rowlock.work.loops import Loops
from rowlock.work.processes import Children, Quarantine
from rowlock.work.progress import ProgressBook
from rowlock.work.running import Running
from rowlock.work.settler import Settler
from rowlock.work.stopping import Stopping
from rowlock.work.suspects import Suspects
from rowlock.work.sweeper import Sweeper
from rowlock.work.threads import Threads
from rowlock.work.version import VERSION

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

log = logging.getLogger("rowlock.worker")

KNOWN_BATCHES = 10_000
LEAVE_SECONDS = 1.0  # for what was told to stop at the end of a shutdown's grace


def worker_id() -> str:
    """Unique for every start of a worker: {hostname}-{pid}-{ms}-{random}, or {WORKER_ID}-{ms}-{random}."""
    name = os.environ.get("WORKER_ID") or f"{socket.gethostname()}-{os.getpid()}"
    return f"{name}-{int(time.time() * 1000)}-{secrets.token_hex(3)}"


class WorkerPool:
    """One worker process' share of the work."""

    def __init__(self, app: Rowlock, config: Mapping[str, Any] | None = None, **changes: Any) -> None:
        self.settings = change_worker(app.settings.worker, dict(config or {}) | changes)
        self.app, self.id = app, worker_id()
        self.stale_refused = 0  # writes that came too late and changed nothing
        self._ending: set[str] = set()  # batches whose last job may just have settled itself
        self.reclaimed = 0  # leases of other workers that this one ended
        self.running: dict[str, Running] = {}  # claimed and not yet settled, by job id
        self._occupied = 0  # slots with an attempt that has not returned
        self._buffer: deque[Running] = deque()  # claimed, waiting for a slot
        self._suspects = Suspects(self._give_back)  # claimed, waiting for the quarantine child
        self._batches: set[str] = set()  # known to have started
        self._started = self._stopping = self._registered = False
        self._deadline = 0.0
        self._exits = AsyncExitStack()
        self._bell: Bell | None = None
        self._store: Store

    # --- start and stop

    async def start(self, *, claims: bool = True) -> None:
        """Open everything and begin to work. Without `claims` it runs only what it is handed (`take`), takes back no
        other worker's jobs, and says in the database that it serves no task."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise NotAllowed(
                "a child process imports this module, and it starts a worker: use if __name__ == '__main__'"
            )
        try:
            await self._begin(claims)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._undo_start()))
            raise

    async def _undo_start(self) -> None:
        """A start that failed half-way leaves nothing behind."""
        if hasattr(self, "progress"):
            await self.progress.stop()
        if self._bell:
            await self._bell.close()
        await self._exits.aclose()
        if self._registered:
            with suppress(StoreError):
                await self._store.run(workers.remove(self.id))

    async def _begin(self, claims: bool) -> None:
        app, settings = self.app, self.settings
        self._store = await app.store()
        self._store.expect_transactions(settings.pool_size)
        uncounted = frozenset(name for name, task in app.registry.all().items() if not task.options.counted)
        self.log = JobLog(self.id, uncounted)
        self._build(await self._open_resources())
        self._bell = await self._store.listen(self._heard) if settings.wakeups else None
        self._filler = self._build_filler()
        self._claims = claims
        self._registered = True
        await self.register()
        if claims:
            await app.sources.declare(app.settings.sources)
        await retention.first_partitions(self._store, app.keep)
        self.heart.start()
        self.settler.start()
        self._started = True
        if claims:
            self._loops.start("fill", self._poll_and_assign)
            self._loops.start("sweep", self.sweeper.round)
            self._loops.start("tidy", self.sweeper.tidy)
            self._loops.start("forget", self.sweeper.forget_workers)
            self._loops.start("look", Lookout(self._store, settings.queues).round)
        log.info("Worker started: %s", self.id, extra={"queues": settings.queues, "pool_size": settings.pool_size})

    async def _open_resources(self) -> dict[str, Any]:
        resources: dict[str, Any] = {}
        try:
            for lifespan in self.app.lifespans:
                resources |= await self._exits.enter_async_context(asynccontextmanager(lifespan)())
        except BaseException:
            await self._exits.aclose()
            raise
        return resources

    def _build(self, resources: Mapping[str, Any]) -> None:
        app, settings = self.app, self.settings
        self._loops = Loops(self._store.outage)
        self.settler = Settler(
            self._store,
            app.keep,
            before=lambda batch: self.progress.flush(batch),
            answered=self._answered,
            flushed=lambda: self._filler.settled(),
        )
        self._stops = Stopping(self.running, lambda running, end: self.executor.settle(running, end), self._forget)
        self.progress = ProgressBook(self._store, self._stops.lost)
        self.heart = Heart(
            app,
            self.id,
            self.running,
            beat=settings.heartbeat_seconds,
            lease=settings.lease_seconds,
            on_lost=self._stops.lost,
            on_cancel=self._stops.cancelled,
            on_fence=self._stops.fenced,
            on_forgotten=lambda: self._loops.spawn(self._register_again()),
            outage=self._store.outage,
            running=lambda: self._occupied,
            names=lambda: ", ".join(sorted({r.job.task for r in list(self.running.values()) if r.task})) or "none",
        )
        self._threads = Threads(settings.pool_size)
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
            returned=self._returned,
            overrun=lambda running: self._stops.stop(running, "timeout"),
        )
        self.sweeper = Sweeper(self._store, settings, app.keep, self.heart, self._on_reclaimed)

    def _build_filler(self) -> Filler:
        tasks = self.app.registry.all()
        slow = [name for name, task in tasks.items() if task.runs_in == "process"]
        return Filler(
            self._store,
            self.settings,
            self,
            prompt=[name for name in tasks if name not in slow],
            slow=slow,
            can_be_woken=self._bell is not None,
            idle_round=self.log.summarise,
        )

    async def register(self) -> None:
        """Say in the database that this worker is here, and what it serves."""
        bell = self._bell.address if self._bell else None
        names, settings = sorted(self.app.registry.all()) if self._claims else [], self.settings
        await self._store.run(
            workers.register(
                self.id,
                socket.gethostname(),
                os.getpid(),
                VERSION,
                settings.queues,
                names,
                settings.pool_size,
                bell,
                settings.lease_seconds,
            )
        )

    async def _register_again(self) -> None:
        """Our row was removed: we were out of touch for so long that we were believed dead."""
        await self.register()
        self._filler.forgotten()

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what runs, or give it back without using up a try; nothing is lost either way."""
        if self._stopping or not self._started:
            return
        grace = self.settings.shutdown_timeout_seconds if timeout is None else timeout
        self._stopping, self._deadline = True, time.monotonic() + grace
        self._filler.close()
        await self._loops.finish("fill", timeout=min(grace, 10.0))
        await self._give_back_waiting(LEAVE_SECONDS)
        while self._occupied and time.monotonic() < self._deadline:
            await asyncio.sleep(0.02)
        self._stops.all_now()
        late = time.monotonic() + LEAVE_SECONDS
        while self._occupied and time.monotonic() < late:
            await asyncio.sleep(0.02)
        self._stops.give_up_all()
        leases_end = time.monotonic() + max(2.0, self.settings.lease_seconds - self.settings.heartbeat_seconds)
        await self._give_back_waiting(leases_end - time.monotonic())
        await self.settler.drain(leases_end - time.monotonic())
        with suppress(TimeoutError):  # this may be the last worker: nobody else would notice that they are complete
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.settler.end_batches(set(self._ending))
        await self._close()

    def hurry(self) -> None:
        """End the grace of a stop that is under way."""
        self._deadline = time.monotonic()

    async def _give_back_waiting(self, seconds: float) -> None:
        """Claimed but not started: back to the queue, unharmed. A claim that was cut off may have taken jobs, too: the
        database is asked until it answers, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._filler.has_lost_claims:
                    try:
                        await self._filler.adopt_lost_claims()
                    except StoreError as error:
                        log.warning("whether a claim that was cut off has taken jobs is not known yet: %s", error)
                        await asyncio.sleep(random.uniform(0.2, 0.5))
        while self._buffer:
            self._give_back(self._buffer.popleft(), Released(random.random(), "shutdown"))
        self._suspects.close()

    def _give_back(self, running: Running, end: Released) -> None:
        if not running.ended:
            running.ended, running.started = True, time.monotonic()
            self.executor.settle(running, end)

    async def _close(self) -> None:
        await self._loops.stop_all()
        await self.progress.stop()
        await self.heart.stop()
        await self.settler.stop()
        await self._children.close()
        await self._quarantine.close()
        if self._bell:
            await self._bell.close()
        self._threads.close()
        self.log.summarise(force=True)
        try:
            await self._store.run(workers.remove(self.id))
        except StoreError as error:
            log.warning("could not sign off: %s", error)
        await self._exits.aclose()
        log.info("Worker stopped: %s", self.id)

    async def join(self) -> None:
        """Wait; raises if one of the worker's loops has died, so that a supervisor can restart it."""
        await self._loops.join()

    # --- slots

    async def _poll_and_assign(self) -> float:
        """One round of filling the slots; returns the delay before the next."""
        return await self._filler.round()

    @property
    def free(self) -> int:
        """Slots without an attempt."""
        return self.settings.pool_size - self._occupied

    @property
    def waiting(self) -> int:
        """Jobs claimed and waiting for a slot."""
        return len(self._buffer)

    @property
    def unsettled(self) -> int:
        """Outcomes on their way to the database."""
        return self.settler.backlog

    @property
    def idle(self) -> bool:
        """Nothing is claimed here, and the last look found nothing."""
        return not self.running and not self._occupied and self._filler.hungry

    @property
    def held_up(self) -> bool:
        """Idle, although there are jobs: their sources are closed."""
        return self.idle and self._filler.held_up

    def take(self, claimed: list[Claimed], sent: float) -> None:
        """Own these jobs from the moment their claim was sent, and start what has a slot."""
        running, buffer = self.running, self._buffer
        if fresh := {job.batch_id for job in claimed if job.batch_id is not None} - self._batches:
            self._batches = self._batches | fresh if len(self._batches) < KNOWN_BATCHES else fresh
            self._loops.spawn(self._store.run(batches.start(sorted(fresh))))
        for job in claimed:
            attempt = running[job.id] = Running(job, sent)
            if job.losses:
                self._suspects.add(attempt)
            else:
                buffer.append(attempt)
        self._start_waiting()
        with suppress(Exception):  # a filter of the log is somebody's code
            self.log.claimed(claimed)

    def _start_waiting(self) -> None:
        buffer, size = self._buffer, self.settings.pool_size
        if self._suspects.waiting and self._occupied < size and (suspect := self._suspects.next()) is not None:
            buffer.appendleft(suspect)  # it has its slot: the others of its dead worker wait for it
        create_task, execute = asyncio.get_running_loop().create_task, self.executor.execute
        while buffer and self._occupied < size and not self._stopping:
            attempt = buffer.popleft()
            if attempt.ended:
                continue
            self._occupied += 1
            attempt.started = time.monotonic()
            attempt.task = create_task(execute(attempt))

    def _returned(self, attempt: Running) -> None:
        """An attempt has returned: its slot is free, whether or not its outcome is written yet."""
        self._occupied -= 1
        if attempt.job.losses:
            self._suspects.returned(attempt)
        if self._buffer or self._suspects.waiting:
            self._start_waiting()
        self._filler.returned(time.monotonic() - attempt.started, len(self._buffer))

    @asynccontextmanager
    async def alone(self, running: Running) -> AsyncIterator[None]:
        """Run with no other attempt beside: filling stops, and what runs is waited for."""
        self._filler.paused += 1
        try:
            while self._occupied > 1:  # itself; no two suspects run at a time
                await asyncio.sleep(0.02)
            yield
        finally:
            self._filler.paused -= 1
            self._filler.wake()

    # --- what is heard and answered

    def _heard(self, what: str) -> None:
        if what == "work":
            self._filler.stir()
        elif what in ("cancel", f"cancel:{self.id}"):
            self._loops.spawn(self._look_for_cancels())

    async def _look_for_cancels(self) -> None:
        leases = [(running.job.id, running.job.token) for running in self.running.values()]
        held = await self._store.run(jobs.held(leases))
        self._stops.cancelled([(job_id, token) for job_id, token in leases if held.get(job_id)])

    def _answered(self, running: Running, transition: Transition, answer: jobs.Answer) -> None:
        """An outcome was written, or refused."""
        job, seconds = running.job, time.monotonic() - running.started
        self._forget(running)
        if answer == "lost":
            self.stale_refused += 1
            log.warning("Job %s: a late %s was refused; the lease was lost", job.id, transition.outcome)
        elif transition.state is State.SUCCEEDED:
            self.log.succeeded(job, seconds)
        else:
            self.log.ended(job, transition, seconds)
            if transition.state in (State.QUEUED, State.RETRYABLE):
                self._filler.stir()

    def _settled_by_itself(self, running: Running) -> None:
        """The attempt's own transaction has settled it, or it has no lease any more."""
        self._forget(running)
        if running.reason == "lost":
            self.stale_refused += 1
            return
        self.log.succeeded(running.job, time.monotonic() - running.started)
        if running.job.batch_id is not None:
            self._loops.spawn(self._end_batch(running.job.batch_id))

    async def _end_batch(self, batch_id: str) -> None:
        self._ending.add(batch_id)
        await self.settler.end_batches({batch_id})
        self._ending.discard(batch_id)

    def _forget(self, running: Running) -> None:
        if self.running.get(running.job.id) is running:
            del self.running[running.job.id]

    def _on_reclaimed(self, reclaimed: list[jobs.Reclaimed]) -> None:
        self.reclaimed += len(reclaimed)
        for job, transition in reclaimed:
            log.warning("Job %s reclaimed from %s, now %s", job.id, job.worker, transition.state)
        log.warning("Reset %d stuck jobs", len(reclaimed))
        self._filler.stir()
