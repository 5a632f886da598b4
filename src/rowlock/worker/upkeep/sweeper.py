"""The sweeper, in every worker, without a leader: ends leases that ran out, expires, prunes, forgets dead workers.

It believes `lease_expires_at` only. After an outage every lease looks expired although its worker lives, so nothing is
reclaimed before this process has been in touch with the database for a whole lease, nor before the server has been up
for one; and a jump of the database's clock, or of this machine's, counts as an outage.
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

BATCH = 100  # rows in one transaction of a sweep; after a full one, the next sweep follows at once
TIDY_SECONDS = 600.0  # between two rounds of retention, and of removing dead workers
COUNT_SECONDS = 5.0  # between two rounds of summing up what was counted; twice that while there is nothing to sum up


class InTouch(Protocol):
    """Something that talks to the database more often than a lease can run out."""

    in_touch_since: float  # since when it has reached the database each time


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
        self._ahead: tuple[float, float] | None = None  # the database's clock is ahead of boottime by between these
        self._has_tidied = False
        self._sampled = 0  # the minute in which this process tried last to sample the queues

    def start(self, loops: Loops) -> None:
        """Begin, each job in a loop of its own."""
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
            # Two outages that this worker may not notice. On a full disk some statements work, perhaps all of its own,
            # while others cannot renew their leases. And who waits for a lock of the table waits with all others.
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
        """Look for a jump of the database's clock, which it read between these moments: after one, the leases of living
        workers look expired until their next heartbeat."""
        least, most = clock - answered, clock - asked
        before, self._ahead = self._ahead, (least, most)
        jump = 0.0 if before is None else max(least - before[1], before[0] - most)
        if jump > self._settings.lease_seconds / 2:
            log.warning("the database's clock jumped by %.0f s or more; no lease is reclaimed for one lease", jump)
            self._in_touch_since = boottime()

    def _may_reclaim(self) -> bool:
        drift = time.time() - boottime()
        if abs(drift - self._drift) > self._settings.lease_seconds / 2:
            log.warning("the wall clock jumped by %.0f s; no lease is reclaimed for one lease", drift - self._drift)
            self._in_touch_since = boottime()
        self._drift = drift
        # The heart beats more often than a lease can run out, so it notices every outage that could expire one.
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
        """End complete batches whose last outcome was written by a worker that died before it could end them."""
        after = claim.NO_ID
        while found := await self._store.run(batches.still_open(after, BATCH)):
            await batches.end_each(self._store, found)
            after = found[-1]

    async def tidy(self) -> float:
        """Retention: partitions for the days to come, and what is past its time. Returns the delay before the next."""
        await self._store.run(bad_rows.forget())
        # Not at the start: a worker has made the partitions that it needs then, and each further one makes every settle
        # wait for some milliseconds. Workers that start together would also make them all at the same moment.
        if self._has_tidied:
            longest = max(self._keep.succeeded, self._keep.failed)
            await partitions.ensure_partitions(self._store, int(longest / DAY) + 2)
        self._has_tidied = True
        await retention.prune(self._store, self._keep)
        await self._store.run(counters.forget())
        return TIDY_SECONDS * random.uniform(0.8, 1.2)

    async def count(self) -> float:
        """Sum up what was counted since the last time, and write down how long the queues are, once a minute. Returns
        the delay before the next."""
        counted = await self._store.run(counters.waiting())
        if counted:
            while await self._store.run(counters.sum_up()):
                pass
        if (minute := int(time.time() / 60)) != self._sampled:
            await counters.sample(self._store)
            self._sampled = minute
        return COUNT_SECONDS * (1 if counted else 2) * random.uniform(0.8, 1.2)

    async def forget_workers(self) -> float:
        """Remove the rows of dead workers, but not before living workers had time to send a heartbeat after an outage.
        Returns the delay before the next."""
        if not self._may_reclaim():
            return self._settings.lease_seconds
        full = await self._store.run(workers.forget(BATCH)) == BATCH
        return 0.0 if full else TIDY_SECONDS * random.uniform(0.8, 1.2)
