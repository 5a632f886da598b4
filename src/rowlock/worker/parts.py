"""The parts of one worker: makes them, starts their loops, stops them.

A job goes through these steps: `Claimer` claims it; `Executor` starts it in one of the `Slots`; `Settler` writes how it
ended; `Slots` lets go of it. Beside them `Heart` keeps its lease and `Stopping` ends it early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from rowlock.client.client import Client
from rowlock.core.claiming.plan import Plan
from rowlock.core.config import WorkerSettings
from rowlock.signals.meters import TimedStore
from rowlock.store.engine.store import Store
from rowlock.store.jobs import leases
from rowlock.worker import observers
from rowlock.worker.attempt.executor import Executor
from rowlock.worker.attempt.job_log import JobLines
from rowlock.worker.attempt.progress import ProgressBook
from rowlock.worker.attempt.progress_writer import ProgressWriter
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.attempt.stopping import Stopping
from rowlock.worker.claim.claimer import Claimer, WorkerClaims
from rowlock.worker.loops import Loops
from rowlock.worker.registration import Registration
from rowlock.worker.settle.batches import BatchMarks
from rowlock.worker.settle.settler import Settler
from rowlock.worker.upkeep.checks import Lookout
from rowlock.worker.upkeep.heartbeat import Heart, Stoppable
from rowlock.worker.upkeep.result_files import ResultTidy
from rowlock.worker.upkeep.sweeper import Sweeper

LINES_SECONDS = 1.0  # for the log lines of jobs that are not yet written when a worker stops


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
        self.watcher, self.meter = observers.choose(app, settings, worker)
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
