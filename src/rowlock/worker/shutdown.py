"""How a worker ends: it claims no more, lets running attempts finish for a while, gives the rest back, and writes every
outcome before its leases run out."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StoreError

if TYPE_CHECKING:
    from rowlock.worker.pool import WorkerPool

log = logging.getLogger("rowlock.worker")

LEAVE_SECONDS = 1.0  # for attempts that were asked to stop at the end of a shutdown's grace
CLAIM_SECONDS = 10.0  # at most, for a claim that is under way when the worker stops


class Shutdown:
    """The end of one worker."""

    def __init__(self, pool: WorkerPool, settings: WorkerSettings) -> None:
        self._pool, self._settings = pool, settings
        self.begun = False
        self._deadline = math.inf

    def limit(self, grace: float) -> None:
        """Release the running attempts after these seconds, or earlier if that was the time limit before."""
        self._deadline = min(self._deadline, time.monotonic() + grace)

    async def run(self, grace: float) -> None:
        """Let running attempts finish for `grace` seconds, then release them without using up a try; then write what
        is not yet written."""
        pool, slots, stopping = self._pool, self._pool.slots, self._pool.stopping
        self.begun, self._deadline = True, time.monotonic() + grace
        pool.claimer.close()
        slots.closed = True
        await pool.loops.finish("claim", timeout=min(grace, CLAIM_SECONDS))
        await self._give_back_unstarted(LEAVE_SECONDS)
        while slots.occupied and time.monotonic() < self._deadline:
            await asyncio.sleep(0.02)
        stopping.all_now()
        late = time.monotonic() + LEAVE_SECONDS
        while slots.occupied and time.monotonic() < late:
            await asyncio.sleep(0.02)
        stopping.give_up_all()
        leases_end = time.monotonic() + max(2.0, self._settings.lease_seconds - self._settings.heartbeat_seconds)
        await self._give_back_unstarted(leases_end - time.monotonic())
        await pool.settler.drain(leases_end - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await pool.batches.finish()

    async def _give_back_unstarted(self, seconds: float) -> None:
        """Release jobs that are claimed but not started. A claim whose reply was lost may have claimed jobs: ask
        the database about it until it answers, or the time is up."""
        claimer = self._pool.claimer
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while claimer.has_lost_claims:
                    try:
                        await claimer.adopt_lost_claims()
                    except StoreError as error:
                        log.warning("whether a claim that was cut off has taken jobs is not known yet: %s", error)
                        await asyncio.sleep(random.uniform(0.2, 0.5))
        self._pool.stopping.give_back_unstarted()
