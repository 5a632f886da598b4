"""The sweeper reclaims expired leases, expires jobs, prunes old rows and removes dead workers. Every worker runs one,
without a leader.

It trusts `lease_expires_at` only. After an outage every lease looks expired although its worker is alive. So leases are
reclaimed only after this process has been in touch with the database, and the server has been up, for one full lease.
A jump of the database's clock or of this machine's clock counts as an outage.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from typing import Protocol

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StoreError
from rowlock.core.job import Settlement
from rowlock.core.policy import DAY
from rowlock.signals.events import Watcher
from rowlock.store import batches, workers
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.store import Store
from rowlock.store.jobs import cancel, claim, leases, settle
from rowlock.store.read import counters
from rowlock.store.upkeep import bad_rows, partitions, retention
from rowlock.worker.claimer import Claimer
from rowlock.worker.loops import Loops

log = logging.getLogger("rowlock.worker")

BATCH = 100  # rows in one transaction of a sweep; after a full batch, the next sweep follows at once
TIDY_SECONDS = 600.0  # between two rounds of retention, and of removing dead workers
COUNT_SECONDS = 5.0  # between two rounds of summing up counters; twice that after a round without any


class InTouch(Protocol):
    """Something that contacts the database several times per lease."""

    in_touch_since: float  # start of the current run of successful contacts


class Sweeper:
    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        keep: settle.Keep,
        heart: InTouch,
        claimer: Claimer,
        watcher: Watcher,
    ) -> None:
        self._store, self._settings, self._keep = store, settings, keep
        self._heart, self._claimer, self._watcher = heart, claimer, watcher
        self.reclaimed = 0  # leases of other workers that this one ended
        self._in_touch_since = boottime()
        self._drift = time.time() - boottime()
        self._ahead: tuple[float, float] | None = None  # bounds of: database clock minus boottime
        self._has_tidied = False
        self._sampled = 0  # the minute in which this process last sampled the queues

    def start(self, loops: Loops) -> None:
        """Start one loop for each kind of upkeep."""
        loops.start("sweep", self.round)
        loops.start("tidy", self.tidy)
        loops.start("sum up", self.count)
        loops.start("forget", self.forget_workers)

    async def round(self) -> float:
        """One sweep. Returns the delay before the next."""
        pause = self._settings.sweep_seconds * random.uniform(0.8, 1.2)
        try:
            asked = boottime()
            found = await self._store.run(leases.to_sweep())
            answered = boottime()
            self._compare(found.clock, asked, answered)
            # This worker's statements may all succeed while other workers cannot renew their leases: if the disk is
            # full, only some statements fail; and a table lock that made this statement wait made their beats wait.
            waited = answered - asked >= self._settings.lease_seconds - self._settings.heartbeat_seconds
            if waited or self._store.outage.lasts:
                self._in_touch_since = answered
            expired = await self._expire() if found.overdue else 0
            reclaimed = await self._reclaim() if found.lapsed and self._may_reclaim() else []
            if found.batched:
                await self._end_batches()
        except StoreError:
            self._in_touch_since = boottime()
            raise
        return 0.0 if BATCH in (len(reclaimed), expired) else pause

    def _compare(self, clock: float, asked: float, answered: float) -> None:
        """Detect a jump of the database's clock, which was read between `asked` and `answered`. After a jump, leases
        of living workers look expired until their next heartbeat."""
        least, most = clock - answered, clock - asked
        before, self._ahead = self._ahead, (least, most)
        jump = 0.0 if before is None else max(least - before[1], before[0] - most)
        if jump > self._settings.lease_seconds / 2:
            pause = self._settings.lease_seconds
            log.warning("the database's clock jumped by %.0f s or more; reclaiming no leases for %g s", jump, pause)
            self._in_touch_since = boottime()

    def _may_reclaim(self) -> bool:
        drift = time.time() - boottime()
        if abs(drift - self._drift) > self._settings.lease_seconds / 2:
            jump, pause = drift - self._drift, self._settings.lease_seconds
            log.warning("this machine's clock jumped by %.0f s; reclaiming no leases for %g s", jump, pause)
            self._in_touch_since = boottime()
        self._drift = drift
        # There are several heartbeats per lease, so they notice every outage that could make leases expire.
        since = max(self._in_touch_since, self._heart.in_touch_since)
        return boottime() - since >= self._settings.lease_seconds

    async def _reclaim(self) -> list[Settlement]:
        guard = self._settings.lease_seconds
        draws = [random.random() for _ in range(BATCH)]
        answers = await bad_rows.change_next(
            self._store,
            "reclaim",
            partial(leases.reclaim, draws, guard, self._keep),
            bad_rows.next_ids("expired", n=BATCH, guard=guard),
        )
        reclaimed = [lost for answer in answers for lost in answer]
        if reclaimed:
            self.reclaimed += len(reclaimed)
            self._watcher.reclaimed(reclaimed)
            self._claimer.woken()
        return reclaimed

    async def _expire(self) -> int:
        expire = partial(cancel.expire, BATCH, self._keep)
        return sum(await bad_rows.change_next(self._store, "expire", expire, bad_rows.next_ids("overdue", n=BATCH)))

    async def _end_batches(self) -> None:
        """End complete batches that are still open because the worker that wrote their last outcome died."""
        after = claim.NO_ID
        while found := await self._store.run(batches.still_open(after, BATCH)):
            await batches.end_each(self._store, found)
            after = found[-1]

    async def tidy(self) -> float:
        """Create the partitions of the coming days and delete rows past their retention. Returns the delay before the
        next round."""
        await self._store.run(bad_rows.forget())
        # Not in the first round: the start has made the partitions that are needed soon. Each further partition makes
        # all settles wait for some milliseconds, and workers that start together would all do this at the same moment.
        if self._has_tidied:
            longest = max(self._keep.succeeded, self._keep.failed)
            await partitions.ensure_partitions(self._store, int(longest / DAY) + 2)
        self._has_tidied = True
        await retention.prune(self._store, self._keep)
        await self._store.run(counters.forget())
        return TIDY_SECONDS * random.uniform(0.8, 1.2)

    async def count(self) -> float:
        """Sum up new counter rows and, once a minute, sample the lengths of the queues. Returns the delay before the
        next round."""
        counted = await self._store.run(counters.waiting())
        if counted:
            while await self._store.run(counters.sum_up()):
                pass
        if (minute := int(time.time() / 60)) != self._sampled:
            await counters.sample(self._store)
            self._sampled = minute
        return COUNT_SECONDS * (1 if counted else 2) * random.uniform(0.8, 1.2)

    async def forget_workers(self) -> float:
        """Remove the rows of dead workers. After an outage, first give living workers time to send a heartbeat. Returns
        the delay before the next round."""
        if not self._may_reclaim():
            return self._settings.lease_seconds
        full = await self._store.run(workers.forget(BATCH)) == BATCH
        return 0.0 if full else TIDY_SECONDS * random.uniform(0.8, 1.2)
