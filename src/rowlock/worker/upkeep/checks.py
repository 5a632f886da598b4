"""Checks of a worker, every 25 seconds: was the database's clock set back, and do jobs wait for an unknown task?"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection
from datetime import datetime

from rowlock.store.engine import clock
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.store import Store
from rowlock.store.read.counts import unknown_tasks
from rowlock.store.upkeep import clock_repair

log = logging.getLogger("rowlock.worker")

LOOK_SECONDS = 25.0
SET_BACK_SECONDS = 5.0  # ignore a clock that has lost less than this against the machine's clock
FEW, ALL = 10_000, 10_000_000  # how many scheduled jobs to check: after a start, and when the clock was set back


class Lookout:
    def __init__(self, store: Store, queues: Collection[str]) -> None:
        self._store, self._queues = store, queues
        self._seen: tuple[datetime, float] | None = None  # the database's clock and ours in the last round
        self._unknown: set[tuple[str, str]] = set()  # (queue, task) that the last round found
        self._warned: set[tuple[str, str]] = set()

    async def round(self) -> float:
        is_first = self._seen is None
        await self._correct_times()
        if not is_first:  # workers that were started together with this one may not have registered yet
            await self._warn_unknown()
        return LOOK_SECONDS * random.uniform(0.8, 1.2)

    async def _correct_times(self) -> None:
        """Correct times that were written while the database's clock was ahead. Only if the clock was set back since
        the last round, check all waiting jobs: there may be a million."""
        before, self._seen = self._seen, (await self._store.run(clock.now()), boottime())
        many = FEW if before is None else 0
        if before is not None:
            passed = (self._seen[0] - before[0]).total_seconds()
            many = ALL if passed < self._seen[1] - before[1] - SET_BACK_SECONDS else 0
        names = await self._store.run(clock_repair.put_sources_right())
        leases, retries = await self._store.run(clock_repair.put_jobs_right(many))
        if names or leases or retries:
            text = "the database's clock was ahead and was set back; corrected times: sources %d, leases %d, retries %d"
            log.warning(text, len(names), leases, retries)

    async def _warn_unknown(self) -> None:
        """Warn once about each task in this worker's queues that no live worker has registered. A task must be found in
        two rounds in a row: after an outage, workers look dead until their next heartbeat."""
        waiting = {
            (queue, task): n for queue, task, n in await self._store.run(unknown_tasks()) if queue in self._queues
        }
        for (queue, task), number in waiting.items():
            if (queue, task) in self._unknown - self._warned:
                text = (
                    "no live worker of queue %r knows the task %r; waiting jobs: %d. Start a worker that registers the"
                    " task, or cancel the jobs: rowlock jobs cancel --task %s"
                )
                log.warning(text, queue, task, number, task)
        self._warned = self._unknown & set(waiting)
        self._unknown = set(waiting)
