"""Fills the slots: makes due jobs claimable, claims for the room there is, and sleeps when there is nothing.

A claim takes the free slots plus an adaptive prefetch (what this worker finished in the last 100 ms), so that slow work
is never hoarded and fast work never waits for a round trip. Jobs with a source come by `Turns`, for free slots only. A
claim that comes back short means the queue is empty: the worker then says so in its row, looks once more (work may have
come in between) and sleeps until it is woken, a delayed job is due, or the poll interval has passed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.store import aside, jobs, workers
from rowlock.store.engine import Store
from rowlock.store.ids import new_token
from rowlock.store.turns import Taken
from rowlock.work.heartbeat import boottime
from rowlock.work.lanes import LaneBook
from rowlock.work.turns import Turns

T = TypeVar("T")
log = logging.getLogger("rowlock.worker")

PREFETCH_SECONDS = 0.1
PROMOTE_SECONDS = 0.2
PROMOTE_BATCH = 1000
# After asking to be woken, look again at once and then some: an enqueue whose statement did not see the flag yet wakes
# nobody, and may take a while to commit.
LOOKS = (0.0, 0.05, 0.5)
BUSY_SECONDS = 1.0  # a worker that had no room for this long stops asking to be woken
FULL_SECONDS = 2.0  # between looks at a full disk


class Slots(Protocol):
    """What the filler asks of the pool."""

    id: str

    @property
    def free(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def unsettled(self) -> int: ...
    def take(self, claimed: list[Claimed], sent: float) -> None: ...
    async def register(self) -> None: ...


class Filler:
    """Decides when and how much to claim."""

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        slots: Slots,
        *,
        prompt: list[str],
        slow: list[str],
        can_be_woken: bool,
        idle_round: Callable[[], None],
    ) -> None:
        self._store, self._settings, self._slots = store, settings, slots
        self._can_be_woken, self._idle_round = can_be_woken, idle_round
        self._every = LaneBook(settings.queues, prompt + slow)
        self._prompt = LaneBook(settings.queues, prompt)
        self._slow = LaneBook(settings.queues, slow)  # process tasks: claimed for free slots only
        self._has_slow, self._slow_at = bool(slow), 0.0  # when they were last asked for
        self._turns = Turns(store, settings, slots.id, prompt + slow)
        self._wake = asyncio.Event()
        self._returned = 0  # attempts that have returned, ever
        self._marks: deque[tuple[float, int]] = deque()  # (when, how many had returned by then), at each look
        self._prefetch = 0
        self._seconds = 1.0  # mean run time of late; slow until shown otherwise
        self.paused, self.closed = 0, False
        self.hungry = False  # asked to be woken
        self._drained = False  # nothing is left to claim, and we shall be told when there is
        self._passed_over = False  # some lanes were not asked, for want of a free slot
        self._plain_at = 0.0  # not before this is there any use in a claim without sources
        self._full_since: float | None = None
        self._looks: list[float] = []
        self._promoted, self._promote_at, self._stirred = -1.0, 0.0, True
        self._lost_claims: list[str] = []

    # --- told from outside

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def stir(self) -> None:
        """Something may have become due or claimable: look now, and look at the future again."""
        self._stirred, self._drained, self._plain_at = True, False, 0.0
        self._turns.stir()
        self._wake.set()

    def settled(self) -> None:
        """Outcomes were written; if claiming waited for that, look now."""
        self._turns.settled()
        if not self._drained or self._turns.waiting:
            self._wake.set()

    def returned(self, seconds: float, waiting: int) -> None:
        """An attempt has returned after `seconds`; look when less waits here than would be finished soon."""
        self._returned += 1
        self._seconds += 0.1 * (seconds - self._seconds)
        if waiting * 2 <= self._prefetch and not self._drained:
            self._wake.set()

    def forgotten(self) -> None:
        """This worker's row is new, and does not say that it asks to be woken: say so again."""
        self.hungry = False
        self._wake.set()

    def close(self) -> None:
        """Claim no more; a round that is under way ends."""
        self.closed = True
        self._wake.set()

    @property
    def held_up(self) -> bool:
        """Whether the last look found jobs with a source, and none of them may start."""
        return self._turns.closed

    # --- one round

    async def round(self) -> float:
        """Claim, start, promote. Returns the delay before the next round."""
        if self.paused or self.closed:
            return await self._sleep(0.05)
        try:
            self._drained = self._passed_over = False
            room, more = await self._claim_all_or_set_aside()
            due = await self._promote()  # after the claim: whoever was woken should not wait for it
            if room <= 0:
                await self._stop_asking()
                return await self._sleep(min(due, PROMOTE_SECONDS))
            if more or due <= 0:
                return 0.0
            if not self.hungry:
                await self._ask_to_be_woken()
                self._looks = list(LOOKS)
            if self._looks:
                self._turns.stir()
                return await self._sleep(min(due, self._looks.pop(0)))
            self._drained = self._can_be_woken and not self._passed_over
            poll = self._settings.poll_interval_seconds
            # Not when it was stirred in the middle of this round: the claim may have come before what stirred it.
            if self._drained and not self._wake.is_set() and time.monotonic() >= self._plain_at:
                self._plain_at = time.monotonic() + 0.9 * poll
            due = min(due, self._turns.sleep)
        except StorageFull as error:
            self._store.outage.failed("claims", error)
            return await self._sleep(FULL_SECONDS)
        return await self._sleep(min(due, self._settings.poll_interval_seconds))

    async def _claim_all_or_set_aside(self) -> tuple[int, bool]:
        """The same, and when a row that no claim can take makes it fail, set that one aside for the next round."""
        try:
            return await self._claim_all()
        except aside.OUTAGE:
            raise
        except Exception as error:
            lanes = [lane[:2] for lane in self._every.lanes(1)]
            if not await aside.put_unclaimable(self._store, lanes):
                raise
            log.warning("a claim failed because of a job that cannot be claimed: %s", error)
            return 1, True

    async def _claim_all(self) -> tuple[int, bool]:
        """The room there was, and whether there may be more to claim for it. Jobs with a source come first where some
        are known to wait, because they may be of a better priority; else last, so that nobody waits for the look."""
        room, more = self._room(), False
        first = self._turns.waiting
        if first:
            more = await self._claim_turns()
        if not more and (left := self._room() if first else room) > 0 and time.monotonic() >= self._plain_at:
            more = await self._claim(left)
        if not first:
            more = await self._claim_turns() or more
        return room, more

    async def _claim_turns(self) -> bool:
        """Claim jobs with a source for the free slots, if it is time to; answers whether there may be more."""
        free = min(self._slots.free - self._slots.waiting, self._settings.claim_batch_size)
        if self._turns.wait > 0 or (free <= 0 and not self._prefetch):
            return False
        # With all slots taken by jobs that were claimed ahead, only to see whether that must end.
        return await self._turns.claim(max(free, 0), self._run_claim)

    async def _run_claim(self, token: str, claim: Callable[[], Awaitable[Taken]]) -> Taken:
        """A claim of jobs with a source; what it took is started."""
        await self.adopt_lost_claims()
        sent = boottime()
        taken = await self._not_lost(token, claim())
        if taken.jobs:
            self._stirred, self._plain_at = True, 0.0
            self._slots.take(taken.jobs, sent)
        return taken

    async def _not_lost(self, token: str, claim: Awaitable[T]) -> T:
        """Remember a claim whose reply does not come: it may have taken jobs."""
        try:
            return await claim
        except (StoreUnavailable, asyncio.CancelledError) as error:
            if getattr(error, "may_have_happened", True):
                self._lost_claims.append(token)
            raise

    def _room(self) -> int:
        """How many to claim: free slots plus prefetch, less what waits here already."""
        # Slow work is not prefetched: it would wait here for a slot while another worker has one. Nor is anything
        # while jobs that are never claimed ahead wait for a free slot: there would never be one.
        starving = self._turns.open or (self._has_slow and time.monotonic() > self._slow_at + PREFETCH_SECONDS)
        self._prefetch = 0 if starving or self._seconds > PREFETCH_SECONDS else self._returned_lately()
        waiting = self._slots.waiting
        if self._prefetch and waiting > self._prefetch // 2:
            return 0  # enough for now; many small claims would cost more than they bring
        if self._slots.unsettled > 4 * self._settings.claim_batch_size:
            return 0  # the database takes outcomes more slowly than they come
        return min(self._slots.free + self._prefetch - waiting, self._settings.claim_batch_size)

    def _returned_lately(self) -> int:
        """Attempts that returned within the last 100 ms, or since the last look if that was longer ago."""
        now, marks = time.monotonic(), self._marks
        while len(marks) > 1 and marks[1][0] <= now - PREFETCH_SECONDS:
            marks.popleft()
        marks.append((now, self._returned))
        then, returned = marks[0]
        return round((self._returned - returned) * min(1.0, PREFETCH_SECONDS / max(now - then, 1e-9)))

    async def _claim(self, room: int) -> bool:
        """Answers whether there may be more."""
        await self.adopt_lost_claims()
        if not self._prefetch:
            return (await self._claim_from(self._every, room))[1]
        free = self._slots.free - self._slots.waiting
        slow, more_slow = await self._claim_from(self._slow, min(free, room))
        _, more_prompt = await self._claim_from(self._prompt, room - slow)
        return more_slow or more_prompt

    async def _claim_from(self, book: LaneBook, n: int) -> tuple[int, bool]:
        """How many were claimed, and whether there may be more."""
        lanes = book.lanes(n)
        if not lanes or n <= 0:
            self._passed_over = self._passed_over or bool(lanes)
            return 0, False
        if book is not self._prompt:
            self._slow_at = time.monotonic()
        token, sent = new_token(), boottime()
        claim = jobs.claim(self._slots.id, token, lanes, n, self._settings.lease_seconds)
        claimed = await self._not_lost(token, self._store.run(claim))
        more = book.learn(claimed, n)
        if claimed:
            self._stirred, self._plain_at = True, 0.0
            self._slots.take(claimed, sent)
        return len(claimed), more

    @property
    def has_lost_claims(self) -> bool:
        """Whether there are claims of which nobody knows what they took."""
        return bool(self._lost_claims)

    async def adopt_lost_claims(self) -> None:
        """Claims whose reply was lost hold jobs that nobody runs: ask for them by their tokens."""
        while self._lost_claims:
            sent = boottime()
            adopted = await self._store.run(jobs.adopt(self._slots.id, self._lost_claims[0]))
            self._lost_claims.pop(0)
            if adopted:
                self._slots.take(adopted, sent)

    async def _promote(self) -> float:
        """Make due jobs claimable when it is time to; returns the seconds until it is time again, none if some were."""
        now = time.monotonic()
        at = min(self._promote_at, self._promoted + PROMOTE_SECONDS) if self._stirred else self._promote_at
        if now < at:
            return at - now
        self._stirred = False
        answers = await aside.all_or_each(
            self._store, "promote", jobs.promote(PROMOTE_BATCH), jobs.due_ids(PROMOTE_BATCH), jobs.promote_one
        )
        count = sum(number for number, _ in answers)
        due = min((until for _, until in answers if until is not None), default=None)
        self._promoted = time.monotonic()
        # With the jitter of an idle worker's poll, so that one waking serves both.
        poll = self._settings.poll_interval_seconds * random.uniform(0.9, 1.0)
        idle = poll if self.hungry else PROMOTE_SECONDS
        wait = min(idle, due if due is not None else idle)
        self._promote_at = self._promoted + wait
        if not count:
            return wait
        self._plain_at = 0.0
        self._turns.stir()
        return 0.0

    async def _sleep(self, delay: float) -> float:
        """Sleep until woken, at most `delay`; the next round may then begin."""
        self._idle_round()
        if delay > 0 and not self._wake.is_set() and not self.closed:
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()
        return 0.0

    async def _ask_to_be_woken(self) -> None:
        self.hungry, self._full_since = True, None
        if self._can_be_woken and not await self._set_idle(True):
            await self._slots.register()  # somebody removed our row
            await self._set_idle(True)

    async def _stop_asking(self) -> None:
        """Full for a while: let enqueues go without the cost of waking this worker."""
        now = time.monotonic()
        if not self.hungry:
            return
        if self._full_since is None:
            self._full_since = now
        elif now - self._full_since > BUSY_SECONDS:
            self.hungry, self._full_since = False, None
            if self._can_be_woken:
                await self._set_idle(False)

    def _set_idle(self, idle: bool) -> Awaitable[bool]:
        return self._store.run(workers.set_idle(self._slots.id, idle, self._settings.lease_seconds))
