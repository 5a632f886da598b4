"""WorkerPool: one worker. It opens and wires the parts, runs their loops, and stops them in order.

A job goes through these steps: `Claimer` claims it into `Slots`; `Executor` starts it, and settles how it ended;
`Settler` writes that; `Settled` lets go of it. Beside them `Heart` keeps its lease and `Stopping` ends it early.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, cast

from rowlock.client.client import Client
from rowlock.core.config import change_worker
from rowlock.core.errors import NotAllowed, StoreError
from rowlock.signals.endpoint import Answers, Endpoint
from rowlock.signals.meters import TimedStore, WorkerMeter, check_installed, shown
from rowlock.store import leases, retention
from rowlock.store import tasks as stored_tasks
from rowlock.store.engines.engine import Store, Wakeups
from rowlock.store.workers import StopHow
from rowlock.worker import listeners
from rowlock.worker.alerts import alerts_of
from rowlock.worker.batch_marks import BatchMarks
from rowlock.worker.claimer import Claimer
from rowlock.worker.executor import Executor
from rowlock.worker.heartbeat import Heart
from rowlock.worker.job_lines import JobLines
from rowlock.worker.lookout import Lookout
from rowlock.worker.loops import Loops
from rowlock.worker.progress import ProgressBook, ProgressWriter
from rowlock.worker.registration import Registration, worker_id
from rowlock.worker.result_files import ResultTidy
from rowlock.worker.running import Running
from rowlock.worker.settled import Settled
from rowlock.worker.settler import Settler
from rowlock.worker.slots import Slots
from rowlock.worker.stopping import Stopping
from rowlock.worker.sweeper import Sweeper
from rowlock.worker.vitals import Vitals

log = logging.getLogger("rowlock.worker")

LEAVE_SECONDS = 1.0  # for attempts that were told to stop at the end of a shutdown's grace
CLAIM_SECONDS = 10.0  # at most, for a claim that is under way when the worker stops


class WorkerPool:
    """One worker: it claims jobs and runs them in up to `pool_size` slots."""

    def __init__(self, app: Client, config: Mapping[str, Any] | None = None, **changes: Any) -> None:
        self.settings = change_worker(app.settings.worker, dict(config or {}) | changes)
        self.app, self.id = app, worker_id()
        self._started = self._stopping = False
        self._deadline = 0.0
        self._stopped = asyncio.Event()
        self._asked: asyncio.Task[None] | None = None  # the stop that an operator has asked for
        self._exits = AsyncExitStack()  # what a failed start closes again
        self._store: Store
        self.endpoint: Endpoint | None = None

    # --- start

    async def start(self, *, claims: bool = True) -> None:
        """Open everything and begin to work. Without `claims` it runs only what is put into its slots, reclaims no
        other worker's jobs, and says in the database that it serves no task."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise NotAllowed(
                "a child process imports this module, and it starts a worker: use if __name__ == '__main__'"
            )
        try:
            await self._open(claims)
        except BaseException:  # a start that failed half-way leaves nothing behind
            await asyncio.shield(asyncio.ensure_future(self._exits.aclose()))
            raise
        self._begin(claims)

    async def _open(self, claims: bool) -> None:
        """Everything that can fail; `_exits` undoes it in reverse order."""
        app, settings = self.app, self.settings
        app.add_own_tasks()
        self._store = store = await app.store()
        store.expect_transactions(settings.pool_size)
        resources: dict[str, Any] = {}
        for lifespan in app.lifespans:
            resources |= await self._exits.enter_async_context(asynccontextmanager(lifespan)())
        wakeups = await self._listen() if settings.wakeups else None
        served = app.registry.here() if claims else ()
        address = wakeups.address if wakeups else None
        self._registration = Registration(settings, self.id, address, served, settings.pool_size)
        self._wire(resources, can_be_woken=wakeups is not None)
        self._exits.push_async_callback(self._sign_off)
        self._alerts = alerts_of(app, store, self.id) if claims else None
        if self._alerts is not None:
            self._exits.push_async_callback(self._alerts.stop)
        await self._registration.write(store)
        if claims:
            await store.run(stored_tasks.declare(app.registry.stored()))
            await app.sources.declare(app.settings.sources)
        await retention.first_partitions(store, app.keep)
        self.heart.start()

    async def _listen(self) -> Wakeups:
        wakeups = await self._store.listen(self._woken)
        self._exits.push_async_callback(wakeups.close)
        return wakeups

    def _wire(self, resources: Mapping[str, Any], can_be_woken: bool) -> None:
        """Make the parts; each is given the parts that it uses."""
        app, settings, store = self.app, self.settings, self._store
        tasks = app.registry.here()
        in_process = [name for name, task in tasks.items() if task.runs_in == "process"]
        self._watcher, meter, traces, batch_spans = listeners.choose(app, settings, self.id)
        if meter is not None:
            store = cast(Store, TimedStore(store, meter))
        self._loops = Loops(store.outage)
        self.slots = Slots(self.id, settings.pool_size, self._watcher)
        self._claimer = Claimer(
            store,
            settings,
            self.slots,
            self._registration,
            prompt=[name for name in tasks if name not in in_process],
            slow=in_process,
            can_be_woken=can_be_woken,
            idle_round=self._watcher.rested,
        )
        self._settled = Settled(self.slots, self._claimer, self._watcher)
        progress, self._lines = ProgressBook(store), JobLines(store)
        before: Callable[[list[str]], Awaitable[None]] = progress.flush
        flushed = self._claimer.settled
        if batch_spans is not None:
            before, flushed = batch_spans.settling(before, flushed)
        self.settler = Settler(store, app.keep, before=before, answered=self._settled.by_settler, flushed=flushed)
        self._stops = Stopping(self.slots, self.settler)
        self._progress_writer = ProgressWriter(progress, self._stops)
        self.heart = Heart(
            app,
            settings,
            self.slots,
            self._stops,
            self._registration,
            store.outage,
            registered_again=self._claimer.forgotten,
            asked_to_stop=self._asked_to_stop,
        )
        self._batches = BatchMarks(store, self._loops)
        self.executor = Executor(
            app,
            self.slots,
            resources,
            claimer=self._claimer,
            settler=self.settler,
            settled=self._settled,
            stopping=self._stops,
            progress=progress,
            lines=self._lines,
            batches=self._batches,
            traces=traces,
        )
        self.sweeper = Sweeper(store, settings, app.keep, self.heart, self._settled.by_sweeper)
        if meter is not None:
            self._show(meter)

    def _away(self) -> str | None:
        """Why this worker takes no jobs, if it does not."""
        return "stopping" if self._stopping else None if self._started else "starting"

    def _show(self, meter: WorkerMeter) -> None:
        """Let this process show its numbers, on a port of its own if the settings give one."""
        settings, meters = self.settings, self.app.meters
        vitals = meter.gauges = Vitals(self.slots, self.heart, settings.lease_seconds, self._away)
        meters.append(meter.samples)
        self._exits.callback(meters.remove, meter.samples)
        if settings.metrics_port is not None:
            check_installed()
            answers = Answers(lambda accept: shown(meters, accept), vitals.live, vitals.ready)
            self.endpoint = Endpoint(settings.metrics_host, settings.metrics_port, answers)
            self.endpoint.start()
            self._exits.callback(self.endpoint.close)

    def _begin(self, claims: bool) -> None:
        """Start the loops."""
        self._started = True
        self.settler.start()
        self._loops.start("progress", self._progress_writer.round)
        self._loops.start("lines", self._lines.round)
        if claims:
            self._loops.start("claim", self._claimer.round)
            self._loops.start("sweep", self.sweeper.round)
            self._loops.start("tidy", self.sweeper.tidy)
            self._loops.start("count", self.sweeper.count)
            self._loops.start("forget", self.sweeper.forget_workers)
            tidy = ResultTidy(self._store, self.app.results, abandoned_seconds=10 * self.settings.lease_seconds)
            self._loops.start("results", tidy.round)
            self._loops.start("look", Lookout(self._store, self.settings.queues).round)
        if self._alerts is not None:
            self._alerts.start(self._loops)
        extra = {"queues": self.settings.queues, "pool_size": self.settings.pool_size}
        log.info("Worker started: %s", self.id, extra=extra)

    # --- run

    async def join(self) -> None:
        """Wait until the worker has stopped; raises if one of its loops has died, so that a supervisor can restart the
        process."""
        await self._loops.join()
        if self._asked is not None:
            await self._asked

    async def _poll_and_assign(self) -> float:
        """One round of claiming for the free slots by hand, as the loop `claim` repeats it; returns the delay before
        the next."""
        return await self._claimer.round()

    def _woken(self, what: str) -> None:
        """A wake-up has come from the database."""
        if not self._started:
            return  # the loops look at everything when they start
        if what == "work":
            self._claimer.woken()
        elif what in ("cancel", f"cancel:{self.id}"):
            self._loops.spawn(self._look_for_cancels())

    async def _look_for_cancels(self) -> None:
        held = list(self.slots.held.values())
        still = await self._store.run(leases.held([(attempt.job.id, attempt.token) for attempt in held]))
        self._stops.cancelled([attempt for attempt in held if still.get(attempt.job.id)])

    @property
    def running(self) -> dict[str, Running]:
        """Attempts that are claimed and not yet settled, by job id."""
        return self.slots.held

    @property
    def stale_refused(self) -> int:
        """Outcomes that came after the lease was lost, and changed nothing."""
        return self._settled.stale_refused

    @property
    def reclaimed(self) -> int:
        """Leases of other workers that this one ended."""
        return self._settled.reclaimed

    @property
    def idle(self) -> bool:
        """Whether this worker holds no job, and its last claim found none."""
        return not self.slots.held and not self.slots.occupied and self._claimer.idle

    @property
    def held_up(self) -> bool:
        """Whether this worker holds no job although jobs are ready, because their sources are closed."""
        return self.idle and self._claimer.held_up

    # --- stop

    async def stop(self, timeout: float | None = None) -> None:
        """Stop: let running attempts finish for `shutdown_timeout_seconds`, then release them without using up a
        try. A stop that is under way (an operator's drain has no time limit) gets this one's time limit, if that is
        earlier, and is waited for."""
        if not self._started:
            return
        grace = self.settings.shutdown_timeout_seconds if timeout is None else timeout
        until = time.monotonic() + grace
        if self._stopping:
            self._deadline = min(self._deadline, until)
            await self._stopped.wait()
            return
        self._stopping, self._deadline = True, until
        try:
            await self._stop(grace)
        finally:
            self._stopped.set()

    async def _stop(self, grace: float) -> None:
        self._claimer.close()
        self.slots.closed = True
        await self._loops.finish("claim", timeout=min(grace, CLAIM_SECONDS))
        await self._give_back_unstarted(LEAVE_SECONDS)
        while self.slots.occupied and time.monotonic() < self._deadline:
            await asyncio.sleep(0.02)
        self._stops.all_now()
        late = time.monotonic() + LEAVE_SECONDS
        while self.slots.occupied and time.monotonic() < late:
            await asyncio.sleep(0.02)
        self._stops.give_up_all()
        leases_end = time.monotonic() + max(2.0, self.settings.lease_seconds - self.settings.heartbeat_seconds)
        await self._give_back_unstarted(leases_end - time.monotonic())
        await self.settler.drain(leases_end - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._batches.finish()
        await self._close()

    def hurry(self) -> None:
        """Release the running attempts of a stop that is under way now, without waiting for its timeout."""
        self._deadline = time.monotonic()

    def _asked_to_stop(self, how: StopHow) -> None:
        """An operator asks this worker to end, after the jobs that it runs or now; each heartbeat says it again."""
        if how == "stop":
            self.hurry()
        if self._asked is None and not self._stopping:
            ends = "gives them back" if how == "stop" else "ends after them"
            log.info(
                "an operator asks for a %s: %d jobs run here; takes no more, and %s", how, self.slots.occupied, ends
            )
            self._asked = asyncio.ensure_future(self.stop(0.0 if how == "stop" else math.inf))

    async def _give_back_unstarted(self, seconds: float) -> None:
        """Release jobs that are claimed but not started. A claim whose reply was lost may have claimed jobs, too: ask
        the database about it until it answers, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._claimer.has_lost_claims:
                    try:
                        await self._claimer.adopt_lost_claims()
                    except StoreError as error:
                        log.warning("whether a claim that was cut off has taken jobs is not known yet: %s", error)
                        await asyncio.sleep(random.uniform(0.2, 0.5))
        self._stops.give_back_unstarted()

    async def _close(self) -> None:
        await self._loops.stop_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._lines.flush()
        await self.heart.stop()
        await self.settler.stop()
        await self.executor.close()
        self._watcher.stopped()
        await self._exits.aclose()
        log.info("Worker stopped: %s", self.id)

    async def _sign_off(self) -> None:
        try:
            await self._registration.remove(self._store)
        except StoreError as error:
            log.warning("could not sign off: %s", error)
