"""The bridge between the database and Redis: opens its parts, runs their loops, and stops them.

Any number of bridges may run and share the work. Each sweeps and tidies as a worker does, so a job whose worker stops
reporting is published again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from rowlock.bridge import outbox, stats
from rowlock.bridge.listener import ReportListener
from rowlock.bridge.messages import CANCELS, PROGRESS, REQUESTS, RESULTS
from rowlock.bridge.publisher import Publisher
from rowlock.bridge.streams import REFUSED, TROUBLE, Streams, redis_failed
from rowlock.client.client import Client
from rowlock.core.claiming.actions import Fill
from rowlock.core.claiming.plan import Plan
from rowlock.core.config import change_worker
from rowlock.core.errors import ConfigError, StoreError
from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.signals.events import Watcher
from rowlock.signals.metrics import Samples
from rowlock.store import workers
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.store import Store
from rowlock.store.jobs import bulk
from rowlock.store.jobs import tasks as stored_tasks
from rowlock.store.upkeep import partitions
from rowlock.worker.claimer import Claimer
from rowlock.worker.loops import Loops
from rowlock.worker.registration import Registration, worker_id
from rowlock.worker.upkeep.result_files import ResultTidy
from rowlock.worker.upkeep.sweeper import Sweeper

log = logging.getLogger("rowlock.bridge")

BATCH = 500
CLAIM_BATCH = 2000
CANCEL_SECONDS = 1.0
TRIM_SECONDS = 60.0
CANCELS_SECONDS = 86_400.0  # how long a cancel message stays in its stream
MEASURE_SECONDS = 5.0
ROUND_SECONDS = 10.0  # how long a stopping bridge waits for a round that is under way


class BridgeLog(Watcher):
    def reclaimed(self, lost: Sequence[tuple[Claimed, Transition]]) -> None:
        for job, transition in lost:
            log.warning("Job %s reclaimed from %s, now %s", job.id, job.worker, transition.state)


class Bridge:
    def __init__(self, app: Client) -> None:
        self.app, self.id = app, worker_id()
        self._tasks = app.registry.elsewhere()
        if not self._tasks:
            raise ConfigError("no task of this app has runs_on='redis': there is nothing to publish")
        queues = {*app.settings.worker.queues, *(task.options.queue for task in self._tasks.values())}
        # A worker claims only as many jobs as it can run soon, a bridge as many as may wait in the stream.
        most = min(CLAIM_BATCH, app.settings.redis.unread)
        self._worker = change_worker(app.settings.worker, {"queues": sorted(queues), "claim_batch_size": most})
        self.streams = Streams(app.settings.redis, self.id)
        self.in_touch_since = boottime()  # all heartbeats since then have reached the database
        self._samples: Samples = {}

    # --- start

    async def start(self) -> None:
        """Open everything, then start publishing and listening. Redis may be unreachable at first, but a user or
        password that it refuses raises ConfigError."""
        self._store = store = await self.app.store()
        self._make_parts(store)
        async with AsyncExitStack() as exits:  # a failed start leaves nothing behind
            exits.push_async_callback(self.streams.close)
            try:
                await self.streams.make_groups()
            except REFUSED as error:
                raise ConfigError(f"Redis at {self.streams.place} refuses this user or password: {error}") from None
            except TROUBLE as error:
                redis_failed(self.publisher.outage, "the bridge", error)
            self.app.result_folder.path.mkdir(parents=True, exist_ok=True)
            if self._worker.wakeups:
                wakeups = await store.listen(self._claimer.woken)
                exits.push_async_callback(wakeups.close)
                self._registration.wake_address = wakeups.address
            exits.push_async_callback(self._registration.sign_off, store)
            await self._registration.write(store)
            await store.run(stored_tasks.declare(self.app.registry.stored()))
            await self.app.sources.declare(self.app.settings.sources)
            await partitions.first_partitions(store, self.app.keep)
            exits.push_async_callback(self._loops.stop_all)
            self._exits = exits.pop_all()
        self._begin()

    def _make_parts(self, store: Store) -> None:
        self._loops = Loops(store.outage)
        self.publisher = Publisher(self.app, store, self.streams)
        self.listener = ReportListener(self.app, store, self.streams, self._stored)
        self._registration, watcher = Registration(self._worker, self.id, self._tasks, 0), BridgeLog()
        plan = Plan(self._worker, prefetchable=sorted(self._tasks), in_process=[], parallel=store.writers > 1)
        publisher = self.publisher
        self._claimer = Claimer(store, plan, publisher.plain, publisher.sourced, self._registration, watcher)
        self._claimer.fill, self._claimer.start = lambda: Fill(publisher.free, 0, 0), publisher.start
        self.sweeper = Sweeper(store, self._worker, self.app.keep, self, self._claimer, watcher)

    def _begin(self) -> None:
        self._loops.start("claim", self._claimer.round)
        self._loops.start("publish", self.publisher.round, self.publisher.arrived)
        self._loops.start("listen", self.listener.round)
        self._loops.start("keep", self.listener.keep)
        self._loops.start("count", self._count)
        self._loops.start("look after requests", self.publisher.look_after)
        self._loops.start("sign of life", self._beat)
        self._loops.start("trim", self._trim)
        self._loops.start("cancel", self._cancel)
        # The upkeep that every worker does: perhaps no worker of this app is running.
        self.sweeper.start(self._loops)
        results = ResultTidy(self._store, self.app.results, abandoned_seconds=10 * self._worker.lease_seconds)
        self._loops.start("results", results.round)
        if self.app.metered or self._worker.metrics_port is not None:
            self._loops.start("measure", self._measure)
            self.app.meters.append(self._measured)
            self._exits.callback(self.app.meters.remove, self._measured)
        log.info("Bridge started: %s, Redis at %s, tasks %s", self.id, self.streams.place, ", ".join(self._tasks))

    # --- run

    async def join(self) -> None:
        await self._loops.join()

    def _stored(self, ended: Sequence[Claimed], number: int) -> None:
        """After reports are stored: more requests may be published, and the sources of ended jobs have room."""
        self.publisher.answered(ended, number)
        for source in {job.source for job in ended if job.source is not None}:
            self._claimer.freed(source)
        self._claimer.settled()

    async def _count(self) -> float:
        before = self.publisher.free
        delay = await self.publisher.count()
        if self.publisher.free > before:
            self._claimer.settled()
        return delay

    async def _beat(self) -> float:
        lease = self._worker.lease_seconds
        try:
            if not (await self._store.run(workers.seen(self.id, self.publisher.unread, lease))).there:
                await self._registration.write(self._store)
                self._claimer.forgotten()
        except StoreError:
            self.in_touch_since = float("inf")
            raise
        self.in_touch_since = min(self.in_touch_since, boottime())
        return self._worker.heartbeat_seconds

    async def _cancel(self) -> float:
        """Carry out cancels that only set the job's flag, which workers behind Redis don't see."""
        if asked := await self._store.run(outbox.cancel_asked(BATCH)):
            await bulk.cancel_each(self._store, asked, self.app.keep)
        return CANCEL_SECONDS

    async def _trim(self) -> float:
        began = time.monotonic()
        try:
            for name in (REQUESTS, PROGRESS, RESULTS):
                await self.streams.trim(name)
            await self.streams.trim_before(CANCELS, CANCELS_SECONDS)
        except TROUBLE as error:
            return redis_failed(self.publisher.outage, "the bridge", error)
        return max(TRIM_SECONDS, 20 * (time.monotonic() - began))

    async def _measure(self) -> float:
        """Count the streams' entries every few seconds, so that a scrape doesn't wait for Redis."""
        try:
            self._samples = stats.samples(await stats.numbers(self.app, self.streams))
        except TROUBLE:
            self._samples = {}
        return MEASURE_SECONDS

    def _measured(self) -> Samples:
        return self._samples

    # --- stop

    async def stop(self) -> None:
        """Stop publishing and listening. Messages that were read but not stored are read again by another bridge."""
        self._claimer.close()
        await self._loops.finish("claim", timeout=ROUND_SECONDS)
        for name, finish in (("publish", self.publisher.finish), ("listen", self.listener.finish)):
            # End the loop before the last round: two rounds at once would send the same requests, and one of them would
            # forget requests that the other has not sent.
            await self._loops.finish(name, timeout=ROUND_SECONDS)
            with suppress(*TROUBLE, StoreError):
                async with asyncio.timeout(ROUND_SECONDS):
                    await finish()
        await self._exits.aclose()
        log.info("Bridge stopped: %s", self.id)
