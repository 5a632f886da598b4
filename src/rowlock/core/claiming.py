"""The plan of a worker's claims, pure: told what was seen and what time it is, it says what to do next.

Jobs without a source are claimed for the free slots plus an adaptive prefetch (what this worker finished in the last
100 ms): slow work is never hoarded, and fast work never waits for a round trip. Jobs with a source are claimed in
turn (`seen_sources`), for free slots only. A claim that comes back short means that the queue is empty: the worker then
announces that it is idle, polls again (an enqueue that did not see the announcement sends no wake-up), and sleeps until
it is woken, a delayed job is due, a source opens, or the poll interval has passed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rowlock.core.job import MAX_PRIORITY, Claimed
from rowlock.core.lanes import Lane, Lanes
from rowlock.core.seen_sources import JOBS_A_TURN, MANY_SLOTS, Head, Range, SeenSources, Taken

PREFETCH_SECONDS = 0.1
PROMOTE_SECONDS = 0.2
REPOLLS = (0.0, 0.05, 0.5)  # after announcing that it is idle; the enqueue's transaction may take a while to commit
FULL_SECONDS = 1.0  # a worker that had no room for this long stops asking to be woken
NO_PLAIN_SECONDS = 0.1  # before jobs without a source are asked for again in a claim of jobs with one


class Fill(NamedTuple):
    """How full the worker is."""

    free: int  # slots without an attempt
    waiting: int  # jobs claimed and waiting for a slot
    unsettled: int  # outcomes on their way to the database


class Claim(NamedTuple):
    """Claim jobs without a source."""

    book: Literal["every", "prompt", "slow"]
    ranges: list[Lane]
    n: int
    front: bool  # from the front of the index, not from the low-water marks
    began: float


class Look(NamedTuple):
    """Look which sources have ready jobs."""

    ranges: list[Range]
    began: float


class ClaimSourced(NamedTuple):
    """Claim jobs with a source, and jobs without one in their turn. Several parts are claimed side by side."""

    parts: list[tuple[list[Head], int]]  # sources, and for how many slots
    order: list[str]
    plain: list[Lane]
    rest: int
    began: float


class Promote(NamedTuple):
    """Make due jobs claimable."""


class SetIdle(NamedTuple):
    """Announce that this worker wants to be woken, or no longer wants to be."""

    idle: bool


class Sleep(NamedTuple):
    """There is nothing to do before `until`, unless the worker is told something."""

    until: float


Action = Claim | Look | ClaimSourced | Promote | SetIdle | Sleep


@dataclass(slots=True)
class Plan:
    """What one worker knows about its claims. Times are of one monotonic clock, `wall` is the time of day."""

    queues: Sequence[str]
    prompt: Sequence[str]  # tasks whose jobs may be claimed ahead of a free slot
    slow: Sequence[str]  # tasks that run in a process: claimed for free slots only
    batch: int
    poll_seconds: float
    can_be_woken: bool
    parallel: bool  # the database runs several writes side by side
    jitter: Callable[[], float]  # from 0 to 1
    idle: bool = False  # nothing was left to claim, and the worker has asked to be woken
    sources: SeenSources = field(init=False)
    books: dict[str, Lanes] = field(init=False)
    prefetch: int = 0
    drained: bool = False  # nothing is left to claim, and a wake-up will tell when there is
    repolls: list[float] = field(default_factory=list)
    _poll_at: float = -math.inf  # when jobs without a source are asked for
    _front_at: float = math.inf  # when they must be asked for from the front of the index
    _then_prompt: bool = False  # process tasks were asked for; next the others
    _passed_over: bool = False  # process tasks were not asked for, for want of a free slot
    _slow_at: float = -math.inf  # when they were last asked for
    _promote_at: float = -math.inf
    _promoted: float = -math.inf
    _due_again: bool = True  # something has happened that may have made a job due soon
    _full_since: float | None = None
    _no_plain: tuple[float, int] = (-math.inf, MAX_PRIORITY)  # until then, none up to this priority
    _looked_last: bool = False  # the last claim or look was a look
    _returned: int = 0  # attempts that have returned, ever
    _marks: deque[tuple[float, int]] = field(default_factory=deque)  # (when, how many had returned), at each decision
    _seconds: float = 1.0  # mean run time of late; slow until shown otherwise

    def __post_init__(self) -> None:
        names = {"every": [*self.prompt, *self.slow], "prompt": self.prompt, "slow": self.slow}
        self.books = {name: Lanes(self.queues, tasks) for name, tasks in names.items()}
        self.sources = SeenSources(self.books["every"].names, self.poll_seconds)

    # --- what the worker is told

    def woken(self, now: float) -> None:
        """Something may have become due or claimable."""
        self.drained, self._due_again = False, True
        self._poll_now()
        self.sources.woken(now)

    def returned(self, seconds: float, waiting: int) -> bool:
        """An attempt has returned after `seconds`. Answers whether to claim: less waits here than will soon be done."""
        self._returned += 1
        self._seconds += 0.1 * (seconds - self._seconds)
        claim = waiting * 2 <= self.prefetch and not self.drained
        if claim:
            self._poll_at = -math.inf
        return claim

    def settled(self) -> bool:
        """Outcomes were written. Answers whether to claim: that may have waited for them."""
        if not self.drained:
            self._poll_at = -math.inf
        return not self.drained

    def _poll_now(self) -> None:
        self._poll_at, self._no_plain = -math.inf, (-math.inf, MAX_PRIORITY)

    # --- what to do

    def next(self, slots: Fill, now: float) -> Action:
        """The next thing to do."""
        room = self._room(slots, now)
        action = self._next_claim(slots, room, now)
        if action is not None:
            return action
        promote_at = self._next_promotion()
        if now >= promote_at:  # after the claim: a job that is there already does not wait for it
            return Promote()
        if room <= 0:
            return self._when_full(promote_at, now)
        if not self.idle:
            return SetIdle(True)
        if self._poll_at == math.inf:
            self._poll_at = now + (self.repolls[0] if self.repolls else self.poll_seconds * (0.9 + 0.1 * self.jitter()))
            if self.repolls:
                self.repolls.pop(0)
                self.sources.woken(now)
            else:
                self.drained = self.can_be_woken and not self._passed_over
                self._promote_at = promote_at = min(promote_at, self._poll_at)  # so that one waking serves both
        return Sleep(min(self._poll_at, self._front_at, promote_at, self.sources.next_at(now)))

    def _next_claim(self, slots: Fill, room: int, now: float) -> Action | None:
        """Jobs with a source come first where some are known to wait, because they may be of a better priority; else
        last, so that no job waits for the look. The looks of a survey and claims of jobs without a source alternate: a
        survey of thousands of sources takes a while."""
        free = min(slots.free - slots.waiting, self.batch)
        sourced_first = self.sources.waiting and not (self.sources.surveying and self._looked_last)
        if sourced_first and (action := self._next_sourced(free, now)) is not None:
            self._looked_last = isinstance(action, Look)
            return action
        if room > 0 and (now >= min(self._poll_at, self._front_at) or self._then_prompt):
            self._looked_last = False
            return self._claim(free, room, now)
        return None if sourced_first else self._next_sourced(free, now)

    def _claim(self, free: int, room: int, now: float) -> Action:
        self._passed_over = False
        book: Literal["every", "prompt", "slow"] = "every"
        if self.prefetch and self.slow:
            self._passed_over = free <= 0
            book = "prompt" if self._then_prompt or free <= 0 else "slow"
        self._then_prompt = book == "slow"
        n = min(free, room) if book == "slow" else room
        if book != "prompt":
            self._slow_at = now
        if not self._then_prompt:
            self._poll_at = self._front_at = math.inf
        lanes = self.books[book]
        front = now >= lanes.front_at
        return Claim(book, lanes.ranges(n, front), n, front, now)

    def _next_sourced(self, free: int, now: float) -> Action | None:
        if free <= 0 and not self.prefetch:
            return None
        if now >= self.sources.look_at:
            # Also with all slots taken by jobs that were claimed ahead: it shows whether claiming ahead must end.
            return Look(self.sources.ranges(), now)
        turns = self.sources.turns(free, now) if free > 0 else None
        if turns is None:
            return None
        heads, n = turns.heads, free
        plain = self._plain_up_to(turns.rest, now)
        # Most of a claim is waiting for its statements. Where priorities differ, or plain jobs have a turn, one claim
        # must decide who comes first.
        alike = not plain and heads[0].priority == heads[-1].priority
        if not self.parallel or n < MANY_SLOTS or len(heads) * JOBS_A_TURN < n or not alike:
            return ClaimSourced([(heads, n)], turns.order, plain, turns.rest, now)
        half = len(heads) // 2
        parts = [(heads[:half], n - n // 2), (heads[half:], n // 2)]
        return ClaimSourced(parts, turns.order, plain, turns.rest, now)

    def _plain_up_to(self, rest: int, now: float) -> list[Lane]:
        """Where to ask for jobs without a source: those of a worse priority than `rest` are not yet next."""
        until, none_up_to = self._no_plain
        if now < until and rest <= none_up_to:
            return []
        return [Lane(*name, high_priority=rest + 1) for name in self.books["every"].names]

    def _room(self, slots: Fill, now: float) -> int:
        """How many to claim: free slots plus prefetch, less what waits here already."""
        # Slow work is not claimed ahead: it would wait here while another worker has a slot. Nor is any while jobs
        # that are never claimed ahead wait for a free slot: there would never be one.
        starved = self.sources.has_open(now) or (self.slow and now > self._slow_at + PREFETCH_SECONDS)
        lately = self._returned_lately(now)
        self.prefetch = 0 if starved or self._seconds > PREFETCH_SECONDS else lately
        if self.prefetch and slots.waiting > self.prefetch // 2:
            return 0  # enough for now; many small claims would cost more than they bring
        if slots.unsettled > 4 * self.batch:
            return 0  # the database takes outcomes more slowly than they come
        return min(slots.free + self.prefetch - slots.waiting, self.batch)

    def _returned_lately(self, now: float) -> int:
        """Attempts that returned within the last 100 ms, or since the last decision if that was longer ago."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now - PREFETCH_SECONDS:
            marks.popleft()
        marks.append((now, self._returned))
        then, returned = marks[0]
        return round((self._returned - returned) * min(1.0, PREFETCH_SECONDS / max(now - then, 1e-9)))

    def _next_promotion(self) -> float:
        soon = self._due_again or not self.idle
        return min(self._promote_at, self._promoted + PROMOTE_SECONDS) if soon else self._promote_at

    def _when_full(self, promote_at: float, now: float) -> Action:
        """Full for a while: enqueues need not bear the cost of waking this worker."""
        if self.idle and self._full_since is None:
            self._full_since = now
        elif self.idle and now - (self._full_since or now) > FULL_SECONDS:
            return SetIdle(False)
        return Sleep(min(promote_at, now + PROMOTE_SECONDS))

    # --- what was done

    def claimed(self, claim: Claim, jobs: Sequence[Claimed], now: float, wall: float) -> None:
        """A claim has brought these jobs."""
        more = self.books[claim.book].learn(
            jobs, claim.n, front=claim.front, seconds=now - claim.began, now=now, wall=wall
        )
        if jobs:
            self._due_again = True
        self.sources.polled(now)
        if more:
            self._poll_at = -math.inf
        else:
            self._full_since = None
            if not claim.front:  # a job with an old id may wait for a claim from the front
                self._front_at = min(self._front_at, self.books[claim.book].front_due)

    def saw(self, look: Look, heads: Sequence[Head], now: float) -> None:
        """A look has shown these."""
        self.sources.saw(look.ranges, heads, look.began, now)

    def took(self, claim: ClaimSourced, taken: Sequence[Taken], now: float) -> None:
        """A claim of jobs with a source has brought this, part by part."""
        for (heads, _), one in zip(claim.parts, taken, strict=True):
            self.sources.took(heads, one, claim.began, now)
            if one.jobs:
                self._due_again, self._poll_at = True, -math.inf
            if claim.plain and not one.plain:
                self._no_plain = (now + NO_PLAIN_SECONDS, claim.rest)

    def promoted(self, count: int, due: float | None, now: float) -> None:
        """Due jobs were made claimable; the next is due in `due` seconds."""
        self._due_again, self._promoted = False, now
        self._promote_at = math.inf if due is None else now + due
        if count:
            self._poll_now()
            for book in self.books.values():
                book.forget()  # their ids may be old
            self.sources.woken(now)

    def set_idle(self, idle: bool) -> None:
        """Announced."""
        self.idle, self._full_since = idle, None
        self.repolls = list(REPOLLS) if idle else []
