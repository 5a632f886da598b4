"""WorkerPool: one worker. It opens the database and what listens, has its parts made, and stops them in order.

What a job goes through is in parts.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rowlock.client.client import Client
from rowlock.core.config import change_worker
from rowlock.core.errors import NotAllowed, StoreUnavailable
from rowlock.health.sender import Alerts
from rowlock.signals.endpoint import Endpoint
from rowlock.store.engine.store import Store
from rowlock.store.jobs import tasks as stored_tasks
from rowlock.store.sources import sources
from rowlock.store.upkeep import partitions
from rowlock.store.workers import StopHow
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.health import Vitals, show
from rowlock.worker.parts import Parts
from rowlock.worker.registration import Registration, worker_id
from rowlock.worker.shutdown import Shutdown

log = logging.getLogger("rowlock.worker")

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
