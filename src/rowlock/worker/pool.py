"""One worker: `WorkerPool` opens the database, makes the worker's parts, starts their loops and stops them in order.

A job passes through these parts: `Claimer` claims it, `Executor` starts it in one of the `Slots`, `Settler` writes its
outcome, and `Slots` drops it. Meanwhile `Heart` renews its lease, and `Stopping` may end it early.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

from rowlock.client.client import Client
from rowlock.core.claiming.plan import Plan
from rowlock.core.config import WorkerSettings, change_worker
from rowlock.core.errors import NotAllowed, StoreError, StoreUnavailable, needs
from rowlock.health.sender import Alerts
from rowlock.signals.endpoint import Endpoint
from rowlock.signals.events import Watcher, Watchers
from rowlock.signals.logs import JobLog
from rowlock.signals.meters import TimedStore, WorkerMeter
from rowlock.store.engine.store import Store
from rowlock.store.jobs import claim, leases
from rowlock.store.jobs import tasks as stored_tasks
from rowlock.store.sources import claim as sourced
from rowlock.store.sources import sources
from rowlock.store.upkeep import partitions
from rowlock.store.workers import StopHow
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping
from rowlock.worker.attempt.executor import Executor
from rowlock.worker.attempt.quarantine import Suspects
from rowlock.worker.attempt.reports import JobLines, ProgressBook
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer
from rowlock.worker.loops import Loops
from rowlock.worker.processes.children import Children
from rowlock.worker.registration import Registration, worker_id
from rowlock.worker.settler import BatchMarks, Settler
from rowlock.worker.upkeep.checks import Lookout
from rowlock.worker.upkeep.heartbeat import Heart
from rowlock.worker.upkeep.result_files import ResultTidy
from rowlock.worker.upkeep.sweeper import Sweeper

log = logging.getLogger("rowlock.worker")

LINES_SECONDS = 1.0  # for a stopping worker to write the log lines of its jobs
LEAVE_SECONDS = 1.0  # for stopped attempts to return after the grace period of a shutdown
CLAIM_SECONDS = 10.0  # for a stopping worker's last claim to be answered, at most
START_TRIES, START_SECONDS = 5, 0.2  # if the connection breaks during the start; each delay is longer


class WorkerPool:
    """One worker: it claims jobs and runs them in up to `pool_size` slots."""

    def __init__(self, app: Client, config: Mapping[str, Any] | None = None, **changes: Any) -> None:
        self.settings = change_worker(app.settings.worker, dict(config or {}) | changes)
        self.app, self.id = app, worker_id()
        self._started = False
        self._ending = False
        self._deadline = math.inf  # for running attempts, while the worker stops
        self._stopped = asyncio.Event()
        self._asked: asyncio.Task[None] | None = None  # a stop requested by an operator
        self._exits = AsyncExitStack()  # closed by a stop or a failed start
        self.endpoint: Endpoint | None = None

    # --- start

    async def start(self, *, claims: bool = True) -> None:
        """Open everything and begin to work. With `claims=False` the worker only runs the jobs that its executor is
        given: it doesn't sweep, and registers without tasks."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise NotAllowed(
                "this module starts a worker even when a child process imports it: put the start of the worker under"
                " if __name__ == '__main__'"
            )
        try:
            await self._open(claims)
        except BaseException:  # a start that failed half-way leaves nothing behind
            await asyncio.shield(asyncio.ensure_future(self._exits.aclose()))
            raise
        self._begin(claims)

    async def _open(self, claims: bool) -> None:
        """Do everything that can fail; `_exits` undoes it in reverse order."""
        app, settings = self.app, self.settings
        app.add_own_tasks()
        store = await app.store()
        store.expect_transactions(settings.pool_size, settings.transaction_seconds)
        resources: dict[str, Any] = {}
        for lifespan in app.lifespans:
            resources |= await self._exits.enter_async_context(asynccontextmanager(lifespan)())
        served = app.registry.here() if claims else ()
        self._registration = Registration(settings, self.id, served, settings.pool_size)
        self._make_parts(store, resources)
        if settings.wakeups:
            wakeups = await store.listen(self.claimer.woken)
            self._exits.push_async_callback(wakeups.close)
            self._registration.wake_address = wakeups.address
        self._exits.push_async_callback(self._registration.sign_off, store)
        if claims:
            self._alerts = Alerts(app.settings.alerts, store, self.id)
            self._exits.push_async_callback(self._alerts.stop)
        await self._announce(store, claims)
        self.heart.start()

    async def _announce(self, store: Store, claims: bool) -> None:
        """Write the worker's row and declare its tasks and sources before the first claim. All steps are idempotent, so
        if the connection breaks, start over."""
        for again in range(1, START_TRIES + 1):
            try:
                await self._registration.write(store)
                if claims:
                    await store.run(stored_tasks.declare(self.app.registry.stored()))
                    for class_name in self.app.own_sources:
                        await store.run(sources.ship(class_name))
                    await self.app.sources.declare(self.app.settings.sources)
                await partitions.first_partitions(store, self.app.keep)
                return
            except StoreUnavailable as error:
                if again == START_TRIES:
                    raise
                store.outage.failed("start", error)
                await asyncio.sleep(START_SECONDS * again)

    def _make_parts(self, store: Store, resources: Mapping[str, Any]) -> None:
        """Make the parts of this worker, and pass each the parts that it uses."""
        app, settings, tasks = self.app, self.settings, self.app.registry.here()
        in_process = [name for name, task in tasks.items() if task.runs_in == "process"]
        self.watcher, meter = _observers(app, settings, self.id)
        self._store = store
        if meter is not None:
            store = cast(Store, TimedStore(store, meter))
        self.loops = Loops(store.outage)
        plan = Plan(
            settings,
            prefetchable=[name for name in tasks if name not in in_process],
            in_process=in_process,
            parallel=store.writers > 1,
        )
        self.claimer = Claimer(
            store,
            plan,
            partial(claim.claim, self.id, lease=settings.lease_seconds),
            partial(sourced.claim_sourced, self.id, lease=settings.lease_seconds),
            self._registration,
            self.watcher,
            on_cancel=lambda: self.loops.spawn(self._look_for_cancels()),
        )
        self.slots = Slots(self.id, settings.pool_size, self.claimer, self.watcher)
        self._progress, self._lines = ProgressBook(store), JobLines(store)
        self.settler = Settler(store, app.keep, self.slots, self.claimer, self._progress, self.watcher)
        self.stopping = Stopping(self.slots, self.settler)
        self.batches = BatchMarks(store, self.loops)
        self._children = Children(app, settings.pool_size, self._lines.keeper, spare=True)
        self.executor = Executor(
            app,
            self.slots,
            resources,
            claimer=self.claimer,
            settler=self.settler,
            stopping=self.stopping,
            progress=self._progress,
            batches=self.batches,
            children=self._children,
            suspects=Suspects(self.slots, self.settler, self.claimer, Children(app, 1, self._lines.keeper)),
            keeper=self._lines.keeper,
        )
        self.claimer.fill, self.claimer.start = self.slots.fill, self.executor.start
        self.heart = Heart(
            app,
            self.slots,
            self.stopping,
            self._registration,
            store.outage,
            self.claimer,
            on_stop=self.asked_to_stop,
        )
        self.sweeper = Sweeper(store, settings, app.keep, self.heart, self.claimer, self.watcher)
        if meter is not None:
            for samples in (meter.samples, self.heart.samples):
                app.meters.append(samples)
                self._exits.callback(app.meters.remove, samples)
        if settings.metrics_port is not None:
            where = settings.metrics_host, settings.metrics_port
            self.endpoint = Endpoint(*where, app.meters, self.heart.live, self.heart.ready)
            self._exits.callback(self.endpoint.close)

    def _begin(self, claims: bool) -> None:
        """Start the loops that settle and, with `claims`, those that claim, sweep and check."""
        settings, start = self.settings, self.loops.start
        self._started = True
        start("settle", self.settler.round)
        start("progress", partial(self._progress.round, self.stopping), vital=False)
        start("lines", self._lines.round)
        if claims:
            self._children.prepare(task for task in self.app.registry.here().values() if task.runs_in == "process")
            start("claim", self.claimer.round)
            self.sweeper.start(self.loops)
            tidy = ResultTidy(self._store, self.app.results, abandoned_seconds=10 * settings.lease_seconds)
            start("results", tidy.round)
            start("look", Lookout(self._store, settings.queues).round)
            self._alerts.start(start)
        extra = {"queues": settings.queues, "pool_size": settings.pool_size}
        log.info("Worker started: %s", self.id, extra=extra)

    async def _look_for_cancels(self) -> None:
        if held := list(self.slots.held.values()):
            asked = await self._store.run(leases.held([(attempt.job.id, attempt.token) for attempt in held]))
            self.stopping.cancelled([attempt for attempt in held if asked.get(attempt.job.id)])

    # --- run

    async def join(self) -> None:
        """Wait until the worker has stopped. Raises if one of its loops dies, so that a supervisor restarts the
        process."""
        await self.loops.join()
        if self._asked is not None:
            await self._asked

    async def _poll_and_assign(self) -> float:
        """Run one round of the loop `claim` by hand. Returns the delay before the next round."""
        return await self.claimer.round()

    @property
    def running(self) -> dict[str, LiveAttempt]:
        """Attempts that are claimed and not yet settled, by job id."""
        return self.slots.held

    @property
    def stale_refused(self) -> int:
        """Outcomes refused because the lease was lost."""
        return self.slots.stale_refused

    @property
    def reclaimed(self) -> int:
        """How many leases of other workers this one has ended."""
        return self.sweeper.reclaimed

    @property
    def idle(self) -> bool:
        """Whether this worker holds no job, and its last claim found none."""
        return not self.slots.held and not self.slots.occupied and self.claimer.plan.idle

    @property
    def held_up(self) -> bool:
        """Whether this worker is idle although jobs are ready, because none of their sources admits a job."""
        return self.idle and self.claimer.plan.sources.all_closed

    # --- stop

    async def stop(self, timeout: float | None = None) -> None:
        """Stop: give running attempts `shutdown_timeout_seconds` to finish, then release them, which doesn't count as a
        try. If the worker is stopping already, shorten its time limit to this one if it is longer (an operator's drain
        has none), and wait for the end."""
        if not self._started:
            return
        grace = self.settings.shutdown_timeout_seconds if timeout is None else timeout
        if self._ending:
            self._limit(grace)
            await self._stopped.wait()
            return
        try:
            await self._end_attempts(grace)
            await self.loops.stop_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINES_SECONDS):
                    await self._lines.flush()
            await self.heart.stop()
            await self.executor.close()
            self.watcher.stopped()
            await self._exits.aclose()
            log.info("Worker stopped: %s", self.id)
        finally:
            self._stopped.set()

    def _limit(self, grace: float) -> None:
        """Give running attempts at most `grace` more seconds."""
        self._deadline = min(self._deadline, time.monotonic() + grace)

    async def _end_attempts(self, grace: float) -> None:
        """Claim no more, give running attempts `grace` seconds to finish, release the rest, and write all outcomes
        before their leases run out."""
        slots = self.slots
        self._ending, self._deadline = True, time.monotonic() + grace
        self.claimer.close()
        slots.closed = True
        await self.loops.finish("claim", timeout=min(grace, CLAIM_SECONDS))
        await self._give_back_unstarted(LEAVE_SECONDS)
        while slots.occupied and time.monotonic() < self._deadline:
            await asyncio.sleep(0.02)
        self.stopping.all_now()
        late = time.monotonic() + LEAVE_SECONDS
        while slots.occupied and time.monotonic() < late:
            await asyncio.sleep(0.02)
        self.stopping.give_up_all()
        leases_end = time.monotonic() + max(2.0, self.settings.lease_seconds - self.settings.heartbeat_seconds)
        await self._give_back_unstarted(leases_end - time.monotonic())
        await self.settler.drain(leases_end - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.batches.finish()

    async def _give_back_unstarted(self, seconds: float) -> None:
        """Release jobs that are claimed but not started. A claim whose reply was lost may have claimed jobs, so first
        ask the database about such claims until it answers or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.claimer.has_lost_claims:
                    try:
                        await self.claimer.adopt_lost_claims()
                    except StoreError as error:
                        log.warning("cannot find out yet whether an interrupted claim took any jobs: %s", error)
                        await asyncio.sleep(random.uniform(0.2, 0.5))
        self.stopping.give_back_unstarted()

    def hurry(self) -> None:
        """If the worker is stopping, release its running attempts now."""
        if self._started:
            self._limit(0.0)

    def asked_to_stop(self, how: StopHow) -> None:
        """An operator wants this worker to end after its running jobs, or right now. Each heartbeat repeats the
        request."""
        if how == "stop":
            self.hurry()
        if self._asked is None and not self._ending:
            then = "releasing them now" if how == "stop" else "finishing them first"
            log.info("operator requested a %s: claiming no more; %d jobs running, %s", how, self.slots.occupied, then)
            self._asked = asyncio.ensure_future(self.stop(0.0 if how == "stop" else math.inf))


def _observers(app: Client, settings: WorkerSettings, worker: str) -> tuple[Watcher, WorkerMeter | None]:
    """One watcher for all that the settings enable, and a meter if the worker's metrics are exported. Optional
    libraries are imported here: ConfigError if one is missing."""
    uncounted = frozenset(name for name, task in app.registry.here().items() if not task.options.counted)
    watchers: list[Watcher] = [JobLog(worker, uncounted)]
    meter = WorkerMeter() if settings.metrics_port is not None or app.metered else None
    if meter is not None:
        watchers.append(meter)
    if app.settings.sentry.wanted:
        with needs("sentry", "sentry needs a library"):
            from rowlock.signals.sentry import Sentry
        watchers.append(Sentry(app.settings.sentry))
    if app.traces is not None and app.settings.traces.claims:
        from rowlock.signals.traces import BatchSpans

        watchers.append(BatchSpans())
    return Watchers(*watchers), meter
