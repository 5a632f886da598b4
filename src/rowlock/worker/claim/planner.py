"""Keeps the plan of a worker's claims up to date with what its other parts report, and wakes the claimer when the plan
has changed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rowlock.core.claiming.plan import Plan
from rowlock.core.config import WorkerSettings


class Planner:
    """The plan of one worker's claims (core/claiming/plan.py), and the event for which its claimer sleeps."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        prefetchable: Sequence[str],
        in_process: Sequence[str],
        parallel: bool,
    ) -> None:
        self.plan = Plan(
            settings.queues,
            prefetchable,
            in_process,
            batch=settings.claim_batch_size,
            poll_seconds=settings.poll_interval_seconds,
            can_be_woken=settings.wakeups,
            parallel=parallel,
            jitter=random.random,
        )
        self._wake = asyncio.Event()
        self._pauses, self._closed = 0, False
        self._freed: Counter[str] = Counter()  # source -> attempts that have ended, and of which the plan is not told

    def woken(self) -> None:
        """Jobs may have become due or claimable."""
        self.plan.woken(time.monotonic())
        self._wake.set()

    def returned(self, seconds: float, waiting: int) -> None:
        """An attempt has returned after `seconds`; `waiting` jobs are claimed and have no slot."""
        if self.plan.returned(seconds, waiting) or self.plan.sources.waiting:
            self._wake.set()

    def settled(self) -> None:
        """Outcomes were written."""
        if self.plan.settled():
            self._wake.set()

    def freed(self, source: str) -> None:
        """An attempt of this source has ended, and its outcome is written."""
        self._freed[source] += 1  # `tell_freed` tells the plan in the next round, once for all attempts of the source
        self._wake.set()

    def forgotten(self) -> None:
        """This worker's row is new and does not say that the worker wants to be woken: announce it again."""
        self.plan.idle = False
        self._wake.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Claim nothing meanwhile: an attempt runs alone."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self._wake.set()

    def close(self) -> None:
        """Claim no more; a round that is under way ends."""
        self._closed = True
        self._wake.set()

    # --- for the claimer

    @property
    def forbids_claims(self) -> bool:
        """Whether nothing may be claimed now."""
        return self._pauses > 0 or self._closed

    def tell_freed(self, now: float) -> None:
        """Tell the plan which attempts of sources have ended since the last call."""
        while self._freed:
            self.plan.sources.freed(*self._freed.popitem(), now)

    async def wait(self, delay: float) -> None:
        """Sleep until something is reported, at most `delay` seconds."""
        if delay > 0 and not self._wake.is_set() and not self._closed:
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()
