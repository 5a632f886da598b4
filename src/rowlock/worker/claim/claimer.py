"""Claims jobs: each round carries out one action of core/claiming/plan.py and hands the jobs to the executor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NoReturn, Protocol

from rowlock.core.claiming.actions import Action, Claim, ClaimSourced, Fill, Look, Promote, SetIdle, Sleep
from rowlock.core.claiming.candidates import ClaimResult, Head
from rowlock.core.claiming.ranges import Lane
from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.signals.events import Watcher
from rowlock.store.engine.ids import new_token
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs import claim
from rowlock.store.sources import claim as sourced_claim
from rowlock.store.upkeep import bad_rows
from rowlock.worker.claim.planner import Planner
from rowlock.worker.registration import Registration
from rowlock.worker.upkeep.heartbeat import boottime

log = logging.getLogger("rowlock.worker")

PAUSE_SECONDS = 0.05  # between looks at whether claims are allowed again
PROMOTE_BATCH = 1000  # due jobs that one statement makes claimable, at most
NO_REPLY = (StoreUnavailable, asyncio.CancelledError)
FULL_DISK_SECONDS = 2.0  # between tries while the disk is full


class Room(Protocol):
    """The room for jobs that a claimer fills: `Slots` of a worker, `Publisher` of a bridge."""

    worker_id: str

    @property
    def free(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def unsettled(self) -> int: ...


class Starter(Protocol):
    """What claimed jobs go to: `Executor` of a worker, `Publisher` of a bridge."""

    def start(self, claimed: list[Claimed], sent: float, /) -> None: ...


class Claimer:
    """Keeps the slots of one worker filled. A bridge has its own two claim operations (bridge/claimer.py)."""

    def __init__(
        self,
        store: Store,
        slots: Room,
        executor: Starter,
        planner: Planner,
        registration: Registration,
        watcher: Watcher,
        lease: float,
    ) -> None:
        self._store, self._slots, self._executor, self._planner = store, slots, executor, planner
        self.plan, self._registration, self._watcher, self._lease = planner.plan, registration, watcher, lease
        self._lost_claims: list[str] = []

    def _claim_plain(self, token: str, lanes: Sequence[Lane], n: int) -> Operation[list[Claimed]]:
        """Jobs without a source."""
        return claim.claim(self._slots.worker_id, token, lanes, n, self._lease)

    def _claim_in_turn(
        self, token: str, heads: Sequence[Head], order: Sequence[str], plain: Sequence[Lane], n: int
    ) -> Operation[ClaimResult]:
        """Jobs of these sources, and in turn of the lanes without one."""
        return sourced_claim.claim_sourced(self._slots.worker_id, token, heads, order, plain, n, self._lease)

    @property
    def has_lost_claims(self) -> bool:
        """Whether there are claims whose reply was lost: they may have claimed jobs that this worker does not know."""
        return bool(self._lost_claims)

    async def round(self) -> float:
        """One action of the plan. Returns the delay before the next round: none, because it has slept."""
        if self._planner.forbids_claims:
            await self._sleep(PAUSE_SECONDS)
            return 0.0
        slots, now = self._slots, time.monotonic()
        self._planner.tell_freed(now)
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
            self.plan.woken(time.monotonic())  # the plan counts on what the action would have found: look at all again
            await self._recover(error, action)
        return 0.0

    async def _recover(self, error: Exception, action: Action) -> None:
        """After an error in a round: wait if the disk is full; set aside the jobs that made a claim fail; raise any
        other error again, so that the loop logs it and waits."""
        if isinstance(error, StorageFull):
            self._store.outage.failed("claims", error)
            await self._sleep(FULL_DISK_SECONDS)
        elif isinstance(error, bad_rows.OUTAGE) or not isinstance(action, (Claim, ClaimSourced)):
            raise error
        elif await bad_rows.put_unclaimable(self._store, self.plan.lanes["every"].names):
            log.warning("a claim failed because of a job that cannot be claimed: %s", error)
        else:
            raise error

    async def _claim(self, action: Claim) -> None:
        if self._lost_claims:
            await self.adopt_lost_claims()
        token, sent = new_token(), boottime()
        try:
            claimed = await self._store.run(self._claim_plain(token, action.ranges, action.n))
        except NO_REPLY as error:
            self._remember(token, error)
            raise
        more = self.plan.claimed(action, claimed, time.monotonic(), time.time())
        if claimed:
            self._executor.start(claimed, sent)
            if not more:
                await asyncio.sleep(0)  # nothing to claim is waiting: let the handlers begin before the next decision

    async def _claim_sourced(self, action: ClaimSourced) -> None:
        if self._lost_claims:
            await self.adopt_lost_claims()
        # Wait for both parts, also if one fails: a claim that still runs could claim jobs after a stop.
        parts = [self._claim_part(action, heads, n) for heads, n in action.parts]
        answers = await asyncio.gather(*parts, return_exceptions=True)
        self.plan.claimed_sourced(
            action, [one if isinstance(one, ClaimResult) else _raised(one) for one in answers], time.monotonic()
        )

    async def _claim_part(self, action: ClaimSourced, heads: Sequence[Head], n: int) -> ClaimResult:
        token, sent = new_token(), boottime()
        try:
            result = await self._store.run(self._claim_in_turn(token, heads, action.order, action.plain, n))
        except NO_REPLY as error:
            self._remember(token, error)
            raise
        if result.jobs:
            self._executor.start(result.jobs, sent)
        return result

    def _remember(self, token: str, error: BaseException) -> None:
        """Remember a claim whose reply did not come: it may have claimed jobs."""
        if getattr(error, "may_have_happened", True):
            self._lost_claims.append(token)

    async def adopt_lost_claims(self) -> None:
        """Find the jobs of claims whose reply was lost, by the token of the claim, and start them."""
        while self._lost_claims:
            sent = boottime()
            adopted = await self._store.run(claim.adopt(self._slots.worker_id, self._lost_claims[0]))
            self._lost_claims.pop(0)
            if adopted:
                self._executor.start(adopted, sent)

    async def _promote(self) -> None:
        answers = await bad_rows.all_or_each(
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
            await self._registration.set_idle(self._store, idle)
        except BaseException:
            self.plan.idle = not idle
            raise

    async def _sleep(self, delay: float) -> None:
        self._watcher.rested()
        await self._planner.wait(delay)


def _raised(error: BaseException) -> NoReturn:
    raise error
