"""Claimer: carries out the plan of core/claiming.py, one action a round, and hands what it claims to the pool."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, Protocol

from rowlock.core.claiming import Action, Claim, ClaimSourced, Fill, Look, Plan, Promote, SetIdle, Sleep
from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.core.lanes import Lane
from rowlock.core.seen_sources import Head, Taken
from rowlock.store import aside, claim, sourced_claim, workers
from rowlock.store.engines.engine import Store
from rowlock.store.engines.operation import Operation
from rowlock.store.ids import new_token
from rowlock.worker.heartbeat import boottime
from rowlock.worker.registration import Registration

log = logging.getLogger("rowlock.worker")

PAUSE_SECONDS = 0.05
PROMOTE_BATCH = 1000
FULL_DISK_SECONDS = 2.0  # between tries while the disk is full


class Slots(Protocol):
    """What the claimer asks of the pool."""

    id: str

    @property
    def free(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def unsettled(self) -> int: ...
    def take(self, claimed: list[Claimed], sent: float) -> None: ...


class Claims(Protocol):
    """The operations that claim for one worker."""

    def plain(self, token: str, lanes: Sequence[Lane], n: int) -> Operation[list[Claimed]]: ...
    def sourced(
        self, token: str, heads: Sequence[Head], order: Sequence[str], plain: Sequence[Lane], n: int
    ) -> Operation[Taken]: ...


class OwnClaims:
    """Claims under the worker's own name, for its own slots."""

    def __init__(self, worker: str, lease: float) -> None:
        self._worker, self._lease = worker, lease

    def plain(self, token: str, lanes: Sequence[Lane], n: int) -> Operation[list[Claimed]]:
        """Jobs without a source."""
        return claim.claim(self._worker, token, lanes, n, self._lease)

    def sourced(
        self, token: str, heads: Sequence[Head], order: Sequence[str], plain: Sequence[Lane], n: int
    ) -> Operation[Taken]:
        """Jobs of these sources, and in turn of the lanes without one."""
        return sourced_claim.claim_sourced(self._worker, token, heads, order, plain, n, self._lease)


class Claimer:
    """Keeps the slots of one worker filled."""

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        slots: Slots,
        registration: Registration,
        *,
        prompt: list[str],
        slow: list[str],
        can_be_woken: bool,
        idle_round: Callable[[], None],
        claims: Claims | None = None,
    ) -> None:
        self._store, self._settings, self._slots = store, settings, slots
        self._claims = claims or OwnClaims(slots.id, settings.lease_seconds)
        self._registration = registration
        self._idle_round = idle_round
        self.plan = Plan(
            settings.queues,
            prompt,
            slow,
            batch=settings.claim_batch_size,
            poll_seconds=settings.poll_interval_seconds,
            can_be_woken=can_be_woken,
            parallel=store.writers > 1,
            jitter=random.random,
        )
        self._wake = asyncio.Event()
        self._pauses, self._closed = 0, False
        self._lost_claims: list[str] = []
        self._freed: Counter[str] = Counter()

    # --- what the pool tells

    def woken(self) -> None:
        """Something may have become due or claimable."""
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
        self._freed[source] += 1  # the plan is told in the next round, once for all attempts that have ended by then
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

    # --- what the pool asks

    @property
    def idle(self) -> bool:
        """Whether nothing was left to claim."""
        return self.plan.idle

    @property
    def held_up(self) -> bool:
        """Whether there are jobs with a source, and none of them may start."""
        return self.plan.sources.all_closed

    @property
    def has_lost_claims(self) -> bool:
        """Whether there are claims whose reply was lost: nobody knows what they claimed."""
        return bool(self._lost_claims)

    # --- one round

    async def round(self) -> float:
        """One action of the plan. Returns the delay before the next round: none, because it has slept."""
        if self._pauses or self._closed:
            await self._sleep(PAUSE_SECONDS)
            return 0.0
        slots, now = self._slots, time.monotonic()
        while self._freed:
            self.plan.sources.freed(*self._freed.popitem(), now)
        action = self.plan.next(Fill(slots.free, slots.waiting, slots.unsettled), now)
        try:
            match action:
                case Sleep():
                    await self._sleep(action.until - time.monotonic())
                case Claim():
                    await self._claim(action)
                case ClaimSourced():
                    await self._claim_sourced(action)
                case Look():
                    heads = await self._store.run(sourced_claim.look(action.ranges))
                    self.plan.saw(action, heads, time.monotonic())
                case Promote():
                    await self._promote()
                case SetIdle():
                    await self._set_idle(action.idle)
        except Exception as error:
            self.plan.woken(time.monotonic())
            await self._after(error, action)
        return 0.0

    async def _after(self, error: Exception, action: Action) -> None:
        """What follows a round that failed: wait while the disk is full, set aside the jobs because of which a claim
        failed; other errors are raised again, and the loop tells them and waits."""
        if isinstance(error, StorageFull):
            self._store.outage.failed("claims", error)
            await self._sleep(FULL_DISK_SECONDS)
        elif isinstance(error, aside.OUTAGE) or not isinstance(action, (Claim, ClaimSourced)):
            raise error
        elif await self._set_aside():
            log.warning("a claim failed because of a job that cannot be claimed: %s", error)
        else:
            raise error

    async def _claim(self, action: Claim) -> None:
        await self.adopt_lost_claims()
        token, sent = new_token(), boottime()
        claiming = self._claims.plain(token, action.ranges, action.n)
        with self._remembered_if_lost(token):
            claimed = await self._store.run(claiming)
        self.plan.claimed(action, claimed, time.monotonic(), time.time())
        if claimed:
            self._slots.take(claimed, sent)

    async def _claim_sourced(self, action: ClaimSourced) -> None:
        await self.adopt_lost_claims()
        # Both parts to their end, also if one fails: a claim that nobody waits for could claim jobs after a stop.
        parts = [self._claim_part(action, heads, n) for heads, n in action.parts]
        answers = await asyncio.gather(*parts, return_exceptions=True)
        self.plan.took(action, [one if isinstance(one, Taken) else _raised(one) for one in answers], time.monotonic())

    async def _claim_part(self, action: ClaimSourced, heads: Sequence[Head], n: int) -> Taken:
        token, sent = new_token(), boottime()
        claiming = self._claims.sourced(token, heads, action.order, action.plain, n)
        with self._remembered_if_lost(token):
            taken = await self._store.run(claiming)
        if taken.jobs:
            self._slots.take(taken.jobs, sent)
        return taken

    @contextmanager
    def _remembered_if_lost(self, token: str) -> Iterator[None]:
        """Remember a claim whose reply does not come: it may have claimed jobs."""
        try:
            yield
        except (StoreUnavailable, asyncio.CancelledError) as error:
            if getattr(error, "may_have_happened", True):
                self._lost_claims.append(token)
            raise

    async def adopt_lost_claims(self) -> None:
        """Ask for the jobs of claims whose reply was lost by their tokens: nobody runs them."""
        while self._lost_claims:
            sent = boottime()
            adopted = await self._store.run(claim.adopt(self._slots.id, self._lost_claims[0]))
            self._lost_claims.pop(0)
            if adopted:
                self._slots.take(adopted, sent)

    async def _set_aside(self) -> int:
        """Set aside the jobs that no claim can take; answers how many."""
        return await aside.put_unclaimable(self._store, self.plan.books["every"].names)

    async def _promote(self) -> None:
        answers = await aside.all_or_each(
            self._store, "promote", claim.promote(PROMOTE_BATCH), claim.due_ids(PROMOTE_BATCH), claim.promote_one
        )
        count = sum(number for number, _ in answers)
        due = min((until for _, until in answers if until is not None), default=None)
        self.plan.promoted(count, due, time.monotonic())

    async def _set_idle(self, idle: bool) -> None:
        self.plan.set_idle(idle)
        if not self.plan.can_be_woken:
            return
        try:
            if not await self._write_idle(idle) and idle:
                await self._registration.write(self._store)  # somebody removed our row
                await self._write_idle(idle)
        except BaseException:
            self.plan.idle = not idle
            raise

    async def _write_idle(self, idle: bool) -> bool:
        return await self._store.run(workers.set_idle(self._slots.id, idle, self._settings.lease_seconds))

    async def _sleep(self, delay: float) -> None:
        """Sleep until told something, at most `delay`."""
        self._idle_round()
        if delay > 0 and not self._wake.is_set() and not self._closed:
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()


def _raised(error: BaseException) -> NoReturn:
    raise error
