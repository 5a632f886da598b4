"""The claimer of a worker: carries out its plan's actions, and hands claimed jobs to the executor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import cast

from rowlock.core.claiming.actions import (
    Action,
    Claim,
    ClaimResult,
    ClaimSourced,
    Fill,
    Look,
    Peek,
    Promote,
    SetIdle,
    Sleep,
)
from rowlock.core.claiming.plan import Plan
from rowlock.core.claiming.ranges import Range, Sighting
from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.signals.events import Watcher
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.ids import new_token
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs import claim
from rowlock.store.sources.claim import look
from rowlock.store.upkeep import bad_rows
from rowlock.worker.registration import Registration

log = logging.getLogger("rowlock.worker")

PAUSE_SECONDS = 0.05  # while claims are paused, check this often whether they may resume
PROMOTE_BATCH = 1000  # due jobs that one statement makes claimable, at most
NO_REPLY = (StoreUnavailable, asyncio.CancelledError)
FULL_DISK_SECONDS = 2.0  # between claims while the disk is full


PlainClaim = Callable[[str, Sequence[Range], int], Operation[list[Claimed]]]
SourcedClaim = Callable[[str, Sequence[Sighting], Sequence[str], Sequence[Range], int], Operation[ClaimResult]]


class Claimer:
    """Keeps a worker's slots, or a bridge's stream, filled. Other parts of the worker report events to the claimer,
    which passes them to its plan (core/claiming/plan.py); each round carries out the action that the plan chooses."""

    fill: Callable[[], Fill]  # returns how full the worker is; this and `start` are set before the first round
    start: Callable[[list[Claimed], float], None]  # starts claimed jobs; the number is when their claim was sent

    def __init__(
        self,
        store: Store,
        plan: Plan,
        plain_claim: PlainClaim,
        sourced_claim: SourcedClaim,
        registration: Registration,
        watcher: Watcher,
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        self._store, self.plan, self._plain_claim, self._sourced_claim = store, plan, plain_claim, sourced_claim
        self._registration, self._watcher, self._on_cancel = registration, watcher, on_cancel
        self._lost_claims: list[str] = []
        self._wake = asyncio.Event()
        self._pauses, self._closed = 0, False
        self._freed: Counter[str] = Counter()  # source -> attempts that have ended since the plan was last informed

    # --- reports of other parts

    def woken(self, what: str = "work") -> None:
        """Handle a wake-up from the database or from another part of the worker: `work` means that jobs may have become
        due or claimable, `cancel` that a cancel was requested. Wake-ups before the first round may be lost, because
        that round looks at everything."""
        if what == "work":
            self.plan.woken(time.monotonic())
            self._wake.set()
        elif self._on_cancel is not None and what in ("cancel", f"cancel:{self._registration.worker}"):
            self._on_cancel()

    def returned(self, seconds: float, waiting: int) -> None:
        """An attempt has returned after `seconds`; `waiting` claimed jobs still have no slot."""
        if self.plan.returned(seconds, waiting) or self.plan.sources.waiting:
            self._wake.set()

    def settled(self) -> None:
        if self.plan.settled():
            self._wake.set()

    def freed(self, source: str) -> None:
        """The outcome of one of this source's attempts is written."""
        self._freed[source] += 1  # passed to the plan in the next round, as one call per source
        self._wake.set()

    def forgotten(self) -> None:
        """This worker's row was removed and rewritten, which dropped its idle flag: set the flag again."""
        self.plan.idle = False
        self._wake.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Claim nothing inside this block, because an attempt must run alone."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self._wake.set()

    def close(self) -> None:
        """Claim no more, and end the current sleep."""
        self._closed = True
        self._wake.set()

    # --- rounds

    @property
    def has_lost_claims(self) -> bool:
        """Whether replies to claims were lost: those claims may have leased jobs that this worker does not know of."""
        return bool(self._lost_claims)

    async def round(self) -> float:
        """Carry out one action of the plan. Returns a delay of 0: sleeping is itself an action."""
        if self._pauses or self._closed:
            await self._sleep(PAUSE_SECONDS)
            return 0.0
        now = time.monotonic()
        while self._freed:
            self.plan.sources.freed(*self._freed.popitem(), now)
        action = self.plan.next(self.fill(), now)
        try:
            if self._lost_claims:
                await self.adopt_lost_claims()
            match action:
                case Sleep():
                    await self._sleep(action.until - time.monotonic())
                case Claim():
                    await self._claim(action)
                case ClaimSourced():
                    await self._claim_sourced(action)
                case Look():
                    sightings = await self._store.run(look(action.ranges))
                    self.plan.sources.saw(action.ranges, sightings, action.began, time.monotonic())
                case Peek():
                    ready, due = await self._store.run(claim.peek(action.served))
                    self.plan.peeked(ready, due, time.monotonic())
                case Promote():
                    await self._promote()
                case SetIdle():
                    await self._set_idle(action.idle)
        except Exception as error:
            self.plan.woken(time.monotonic())  # the plan is waiting for this action's findings: let it start over
            await self._recover(error, action)
        return 0.0

    async def _recover(self, error: Exception, action: Action) -> None:
        """Handle an error of a round: wait if the disk is full; set aside the jobs that made a claim fail; raise any
        other error again, so that the loop logs it and backs off."""
        if isinstance(error, StorageFull):
            self._store.outage.failed("claims", error)
            await self._sleep(FULL_DISK_SECONDS)
        elif isinstance(error, bad_rows.OUTAGE) or not isinstance(action, (Claim, ClaimSourced)):
            raise error
        elif await bad_rows.put_unclaimable(self._store, self.plan.ranges["every"].served):
            log.warning("a claim failed; the jobs that cannot be claimed were set aside: %s", error)
        else:
            raise error

    async def _claim(self, action: Claim) -> None:
        token, sent = new_token(), boottime()
        try:
            claimed = await self._store.run(self._plain_claim(token, action.ranges, action.n))
        except NO_REPLY as error:
            self._remember(token, error)
            raise
        more = self.plan.claimed(action, claimed, time.monotonic(), time.time())
        if claimed:
            self.start(claimed, sent)
            if not more:
                await asyncio.sleep(0)  # no more jobs wait to be claimed: let handlers start before the next decision

    async def _claim_sourced(self, action: ClaimSourced) -> None:
        # Wait for both parts even if one fails: the other could still claim jobs after a stop.
        parts = [self._claim_part(action, sightings, n) for sightings, n in action.parts]
        answers = await asyncio.gather(*parts, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        self.plan.claimed_sourced(action, cast(list[ClaimResult], answers), time.monotonic())

    async def _claim_part(self, action: ClaimSourced, sightings: Sequence[Sighting], n: int) -> ClaimResult:
        token, sent = new_token(), boottime()
        try:
            result = await self._store.run(self._sourced_claim(token, sightings, action.order, action.plain, n))
        except NO_REPLY as error:
            self._remember(token, error)
            raise
        if result.jobs:
            self.start(result.jobs, sent)
        return result

    def _remember(self, token: str, error: BaseException) -> None:
        """Remember a claim whose reply was lost, if it may have claimed jobs."""
        if getattr(error, "may_have_happened", True):
            self._lost_claims.append(token)

    async def adopt_lost_claims(self) -> None:
        """Find the jobs of claims whose reply was lost by the claims' tokens, and start them."""
        while self._lost_claims:
            sent = boottime()
            adopted = await self._store.run(claim.adopt(self._registration.worker, self._lost_claims[0]))
            self._lost_claims.pop(0)
            if adopted:
                self.start(adopted, sent)

    async def _promote(self) -> None:
        promote, due_ids = partial(claim.promote, PROMOTE_BATCH), bad_rows.next_ids("due_ids", n=PROMOTE_BATCH)
        answers = await bad_rows.change_next(self._store, "promote", promote, due_ids)
        count = sum(number for number, _ in answers)
        due = min((until for _, until in answers if until is not None), default=None)
        self.plan.promoted(count, due, time.monotonic())

    async def _set_idle(self, idle: bool) -> None:
        self.plan.set_idle(idle)
        if not self.plan.settings.wakeups:
            return
        try:
            await self._registration.set_idle(self._store, idle)
        except BaseException:
            self.plan.idle = not idle
            raise

    async def _sleep(self, delay: float) -> None:
        """Sleep for `delay` seconds, or until another part of the worker reports an event."""
        self._watcher.rested()
        if delay > 0 and not self._wake.is_set() and not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
        self._wake.clear()
