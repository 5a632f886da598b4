"""One worker: `WorkerPool` opens the database and what listens, makes the parts of the worker, and stops them in order.

A job goes through these parts: `Claimer` claims it; `Executor` starts it in one of the `Slots`; `Settler` writes how it
ended; `Slots` lets go of it. Beside them `Heart` keeps its lease and `Stopping` ends it early.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from rowlock.client.client import Client
from rowlock.core.claiming.plan import Plan
from rowlock.core.config import WorkerSettings, change_worker
from rowlock.core.errors import NotAllowed, StoreUnavailable
from rowlock.core.extras import needs
from rowlock.health.sender import Alerts
from rowlock.signals.endpoint import Endpoint
from rowlock.signals.events import Watcher, Watchers
from rowlock.signals.logs import JobLog
from rowlock.signals.meters import TimedStore, WorkerMeter
from rowlock.store.engine.store import Store
from rowlock.store.jobs import leases
from rowlock.store.jobs import tasks as stored_tasks
from rowlock.store.sources import sources
from rowlock.store.upkeep import partitions
from rowlock.store.workers import StopHow
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.executor import Executor
from rowlock.worker.attempt.job_log import JobLines
from rowlock.worker.attempt.progress import ProgressBook, ProgressWriter
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.attempt.stopping import Stopping
from rowlock.worker.claim.claimer import Claimer, WorkerClaims
from rowlock.worker.health import Vitals, show
from rowlock.worker.loops import Loops
from rowlock.worker.registration import Registration, worker_id
from rowlock.worker.settle.batches import BatchMarks
from rowlock.worker.settle.settler import Settler
from rowlock.worker.shutdown import Shutdown
from rowlock.worker.upkeep.checks import Lookout
from rowlock.worker.upkeep.heartbeat import Heart, Stoppable
from rowlock.worker.upkeep.result_files import ResultTidy
from rowlock.worker.upkeep.sweeper import Sweeper

if TYPE_CHECKING:
    from rowlock.signals.traces import Traces

log = logging.getLogger("rowlock.worker")

LINES_SECONDS = 1.0  # for the log lines of jobs that are not yet written when a worker stops
START_TRIES, START_SECONDS = 5, 0.2  # of a worker whose connection breaks while it starts; the delay grows


class WorkerPool:
    """One worker: it claims jobs and runs them in up to `pool_size` slots."""

    def __init__(self, app: Client, config: Mapping[str, Any] | None = None, **changes: Any) -> None:
        self.settings = change_worker(app.settings.worker, dict(config or {}) | changes)
        self.app, self.id = app, worker_id()
        self._started = False
        self._stopped = asyncio.Event()
        self._asked: asyncio.Task[None] | None = None  # the stop that an operator has asked for
        self._exits = AsyncExitStack()  # what a failed start closes again
        self.endpoint: Endpoint | None = None

    # --- start

    async def start(self, *, claims: bool = True) -> None:
        """Open everything and begin to work. Without `claims` it runs only what its executor is given, reclaims no
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
        store = await app.store()
        store.expect_transactions(settings.pool_size)
        resources: dict[str, Any] = {}
        for lifespan in app.lifespans:
            resources |= await self._exits.enter_async_context(asynccontextmanager(lifespan)())
        served = app.registry.here() if claims else ()
        self._registration = Registration(settings, self.id, served, settings.pool_size)
        self._take(Parts(app, settings, store, self.id, self._registration, resources, self))
        if settings.wakeups:
            wakeups = await store.listen(self._parts.woken)
            self._exits.push_async_callback(wakeups.close)
            self._registration.wake_address = wakeups.address
        self._exits.push_async_callback(self._registration.sign_off, store)
        if claims:
            self._alerts = Alerts(app.settings.alerts, store, self.id)
            self._exits.push_async_callback(self._alerts.stop)
        await self._announce(store, claims)
        self.heart.start()

    async def _announce(self, store: Store, claims: bool) -> None:
        """Write what the database has to know of this worker before its first claim. A connection that breaks here is
        no reason to end the process; each step can be repeated."""
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

    def _take(self, parts: Parts) -> None:
        self._parts, self._shutdown = parts, Shutdown(parts, self.settings)
        self.slots, self.settler, self.executor = parts.slots, parts.settler, parts.executor
        self.heart, self.sweeper = parts.heart, parts.sweeper
        if parts.meter is not None:
            vitals = Vitals(self.slots, self.heart, self.settings.lease_seconds)
            self.endpoint = show(self.app, self.settings, parts.meter, vitals, self._exits)

    def _begin(self, claims: bool) -> None:
        """Start the loops."""
        self._started = True
        self._parts.start_loops(claims)
        if claims:
            self._alerts.start(self._parts.loops)
        extra = {"queues": self.settings.queues, "pool_size": self.settings.pool_size}
        log.info("Worker started: %s", self.id, extra=extra)

    # --- run

    async def join(self) -> None:
        """Wait until the worker has stopped; raises if one of its loops has died, so that a supervisor can restart the
        process."""
        await self._parts.loops.join()
        if self._asked is not None:
            await self._asked

    async def _poll_and_assign(self) -> float:
        """One round of claiming for the free slots by hand, as the loop `claim` repeats it; returns the delay before
        the next."""
        return await self._parts.claimer.round()

    @property
    def running(self) -> dict[str, LiveAttempt]:
        """Attempts that are claimed and not yet settled, by job id."""
        return self.slots.held

    @property
    def stale_refused(self) -> int:
        """Outcomes that came after the lease was lost, and changed nothing."""
        return self.slots.stale_refused

    @property
    def reclaimed(self) -> int:
        """Leases of other workers that this one ended."""
        return self.sweeper.reclaimed

    @property
    def idle(self) -> bool:
        """Whether this worker holds no job, and its last claim found none."""
        return not self.slots.held and not self.slots.occupied and self._parts.claimer.plan.idle

    @property
    def held_up(self) -> bool:
        """Whether this worker holds no job although jobs are ready, because their sources are closed."""
        return self.idle and self._parts.claimer.plan.sources.all_closed

    # --- stop

    async def stop(self, timeout: float | None = None) -> None:
        """Stop: let running attempts finish for `shutdown_timeout_seconds`, then release them without using up a
        try. A stop that is under way (an operator's drain has no time limit) gets this one's time limit, if that is
        earlier, and is waited for."""
        if not self._started:
            return
        grace = self.settings.shutdown_timeout_seconds if timeout is None else timeout
        if self._shutdown.begun:
            self._shutdown.limit(grace)
            await self._stopped.wait()
            return
        try:
            await self._shutdown.run(grace)
            await self._parts.stop()
            await self._exits.aclose()
            log.info("Worker stopped: %s", self.id)
        finally:
            self._stopped.set()

    def hurry(self) -> None:
        """Release the running attempts of a stop that is under way now, without waiting for its timeout."""
        if self._started:
            self._shutdown.limit(0.0)

    def asked_to_stop(self, how: StopHow) -> None:
        """An operator asks this worker to end, after the jobs that it runs or now; each heartbeat says it again."""
        if how == "stop":
            self.hurry()
        if self._asked is None and not self._shutdown.begun:
            ends = "gives them back" if how == "stop" else "ends after them"
            log.info(
                "an operator asks for a %s: %d jobs run here; takes no more, and %s", how, self.slots.occupied, ends
            )
            self._asked = asyncio.ensure_future(self.stop(0.0 if how == "stop" else math.inf))


class Parts:
    """The parts of one worker. Each is given the parts that it uses when it is made."""

    def __init__(
        self,
        app: Client,
        settings: WorkerSettings,
        store: Store,
        worker: str,
        registration: Registration,
        resources: Mapping[str, Any],
        pool: Stoppable,
    ) -> None:
        self._app, self._settings, self._store, self._worker = app, settings, store, worker
        tasks = app.registry.here()
        in_process = [name for name, task in tasks.items() if task.runs_in == "process"]
        self.watcher, self.meter = _observers(app, settings, worker)
        if self.meter is not None:
            store = cast(Store, TimedStore(store, self.meter))
        self.loops = Loops(store.outage)
        plan = Plan.of(
            settings,
            prefetchable=[name for name in tasks if name not in in_process],
            in_process=in_process,
            parallel=store.writers > 1,
        )
        claims = WorkerClaims(worker, settings.lease_seconds)
        self.claimer = Claimer(store, plan, claims, registration, self.watcher)
        self.slots = self.claimer.slots = Slots(worker, settings.pool_size, self.claimer, self.watcher)
        progress, self._lines = ProgressBook(store), JobLines(store)
        self.settler = Settler(store, app.keep, self.slots, self.claimer, progress, self.watcher)
        self.stopping = Stopping(self.slots, self.settler)
        self._progress_writer = ProgressWriter(progress, self.stopping)
        self.heart = Heart(app, settings, self.slots, self.stopping, registration, store.outage, self.claimer, pool)
        self.batches = BatchMarks(store, self.loops)
        self.executor = self.claimer.executor = Executor(
            app,
            self.slots,
            resources,
            claimer=self.claimer,
            settler=self.settler,
            stopping=self.stopping,
            progress=progress,
            lines=self._lines,
            batches=self.batches,
        )
        self.sweeper = Sweeper(store, settings, app.keep, self.heart, self.claimer, self.watcher)

    def start_loops(self, claims: bool) -> None:
        """Begin to settle and, with `claims`, to claim and to do what keeps the database tidy."""
        start = self.loops.start
        start("settle", self.settler.round)
        start("progress", self._progress_writer.round)
        start("lines", self._lines.round)
        if claims:
            self.executor.prepare()
            start("claim", self.claimer.round)
            self.sweeper.start(self.loops)
            tidy = ResultTidy(self._store, self._app.results, abandoned_seconds=10 * self._settings.lease_seconds)
            start("results", tidy.round)
            start("look", Lookout(self._store, self._settings.queues).round)

    def woken(self, what: str) -> None:
        """A wake-up has come from the database. Before the loops start it changes nothing: they look at everything."""
        if what == "work":
            self.claimer.woken()
        elif what in ("cancel", f"cancel:{self._worker}"):
            self.loops.spawn(self._look_for_cancels())

    async def _look_for_cancels(self) -> None:
        if held := list(self.slots.held.values()):
            asked = await self._store.run(leases.held([(attempt.job.id, attempt.token) for attempt in held]))
            self.stopping.cancelled([attempt for attempt in held if asked.get(attempt.job.id)])

    async def stop(self) -> None:
        """Stop the loops, the heartbeats, and the threads and child processes of the executor."""
        await self.loops.stop_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINES_SECONDS):
                await self._lines.flush()
        await self.heart.stop()
        await self.executor.close()
        self.watcher.stopped()


def _observers(app: Client, settings: WorkerSettings, worker: str) -> tuple[Watcher, WorkerMeter | None]:
    """Who listens to the worker by its settings, as one, and its numbers if something shows them. ConfigError if a
    library is missing: optional ones are imported here."""
    uncounted = frozenset(name for name, task in app.registry.here().items() if not task.options.counted)
    watchers: list[Watcher] = [JobLog(worker, uncounted)]
    meter = WorkerMeter() if settings.metrics_port is not None or app.metered else None
    if meter is not None:
        watchers.append(meter)
    if app.settings.sentry.wanted:
        watchers.append(_sentry(app))
    if app.traces is not None and app.settings.traces.claims:
        from rowlock.signals.traces import BatchSpans

        watchers.append(BatchSpans(cast("Traces", app.traces)))
    return Watchers(*watchers), meter


def _sentry(app: Client) -> Watcher:
    with needs("sentry", "sentry needs a library"):
        from rowlock.signals.sentry import Sentry
    return Sentry(app.settings.sentry)
