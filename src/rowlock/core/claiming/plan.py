"""Decides what a worker's claimer does next, from what it has seen and the time. Pure.

The worker claims plain jobs (those without a source) for its free slots plus an adaptive prefetch, which is the number
of jobs that it finished in the last 100 ms: slow jobs are never hoarded, and fast ones never wait for a round trip. It
claims jobs with a source in turn (survey.py), and only for free slots. If a claim comes back short, the queue is empty.
The worker then announces that it is idle, polls again, because an enqueue that did not see the announcement sends no
wake-up, and sleeps until it is woken, a delayed job is due, a source opens, or the poll interval has passed.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    Tasks,
)
from rowlock.core.claiming.ranges import Range, Ranges
from rowlock.core.claiming.survey import JOBS_A_TURN, MANY_SLOTS, SeenSources
from rowlock.core.config import WorkerSettings
from rowlock.core.job import MAX_PRIORITY, Claimed

PREFETCH_SECONDS = 0.1  # prefetch as many jobs as returned in this time; jobs that run longer are not prefetched
PROMOTE_SECONDS = 0.2  # between promotions of a busy worker
REPOLLS = (0.0, 0.05, 0.5)  # delays after announcing that it is idle: the enqueue's commit may take a while
FULL_SECONDS = 1.0  # a worker that has had no room for this long stops asking to be woken
NO_PLAIN_SECONDS = 0.1  # how long claims with sources leave out plain jobs after finding none


@dataclass(slots=True)
class Plan:
    """What one worker knows about its claims. Times are of one monotonic clock, `wall` is the time of day."""

    settings: WorkerSettings
    prefetchable: Sequence[str]  # tasks whose jobs may be claimed ahead of a free slot
    in_process: Sequence[str]  # tasks that run in a child process: claimed for free slots only
    parallel: bool  # the database can run several writes at once
    jitter: Callable[[], float] = random.random  # from 0 to 1
    idle: bool = False  # announced as idle in the database, so that an enqueue wakes this worker
    sources: SeenSources = field(init=False)
    ranges: dict[Tasks, Ranges] = field(init=False)
    prefetch: int = 0
    drained: bool = False  # nothing is left to claim, and a new job will wake this worker
    repolls: list[float] = field(default_factory=list)  # delays of the polls that follow the announcement
    _resting: bool = False  # nothing was left to do, so the next poll only peeks
    _poll_at: float = -math.inf  # when the next claim of plain jobs is due
    _front_at: float = math.inf  # when such a claim must start from the front of the index
    _then_prefetchable: bool = False  # the last claim was for in-process tasks; the next is for prefetchable ones
    _passed_over: bool = False  # in-process tasks were left out of the last claim, for lack of a free slot
    _in_process_at: float = -math.inf  # when in-process tasks were last claimed for
    _promote_at: float = -math.inf
    _promoted: float = -math.inf
    _due_again: bool = True  # there may be new delayed jobs: promote without waiting for `_promote_at`
    _full_since: float | None = None
    # (until when, priority): there were no plain jobs up to this priority, so claims leave them out until then
    _no_plain: tuple[float, int] = (-math.inf, MAX_PRIORITY)
    _looked_last: bool = False  # of claims and looks, the last was a look
    _returned: int = 0  # attempts that have returned since the start
    _marks: deque[tuple[float, int]] = field(default_factory=deque)  # (when, how many had returned), at each decision
    _seconds: float = 1.0  # moving average of the run time; jobs count as slow until some have returned

    def __post_init__(self) -> None:
        names: dict[Tasks, Sequence[str]] = {
            "every": [*self.prefetchable, *self.in_process],
            "prefetchable": self.prefetchable,
            "in_process": self.in_process,
        }
        self.ranges = {tasks: Ranges(self.settings.queues, listed) for tasks, listed in names.items()}
        self.sources = SeenSources(self.ranges["every"].served, self.settings.poll_interval_seconds)

    # --- events

    def woken(self, now: float) -> None:
        """Jobs may have become due or claimable."""
        self.drained, self._due_again = False, True
        self._poll_now()
        self.sources.woken(now)

    def returned(self, seconds: float, waiting: int) -> bool:
        """An attempt has returned after `seconds`. Returns whether to claim: at most half of the prefetch waits."""
        self._returned += 1
        self._seconds += 0.1 * (seconds - self._seconds)
        claim = waiting * 2 <= self.prefetch and not self.drained
        if claim:
            self._poll_at, self._resting = -math.inf, False
        return claim

    def settled(self) -> bool:
        """Outcomes were written. Returns whether to claim: too many unsettled attempts may have held claims back."""
        if not self.drained:
            self._poll_at, self._resting = -math.inf, False
        return not self.drained

    def _poll_now(self) -> None:
        self._poll_at, self._resting, self._no_plain = -math.inf, False, (-math.inf, MAX_PRIORITY)

    # --- what to do

    def next(self, slots: Fill, now: float) -> Action:
        room = self._room(slots, now)
        if self._resting and now >= self._poll_at and room > 0 and not self.sources.waiting:
            return Peek(self.ranges["every"].served)
        action = self._next_claim(slots, room, now)
        if action is not None:
            return action
        promote_at = self._next_promotion()
        if now >= promote_at:  # after the claim, so that jobs that are already claimable don't wait
            return Promote()
        if room <= 0:
            return self._when_full(promote_at, now)
        if not self.idle:
            return SetIdle(True)
        if self._poll_at == math.inf:
            if self.repolls:
                self._poll_at = now + self.repolls.pop(0)
                self.sources.woken(now)
            else:
                self._poll_at = now + self.settings.poll_interval_seconds * (0.9 + 0.1 * self.jitter())
                self.drained, self._resting = self._will_be_woken, True
                self._promote_at = promote_at = min(promote_at, self._poll_at)  # poll and promote together
        return Sleep(min(self._poll_at, self._front_at, promote_at, self.sources.next_at(now)))

    @property
    def _will_be_woken(self) -> bool:
        """Whether a new job will wake this worker: it is announced as idle, and has polled since."""
        return self.settings.wakeups and self.idle and not self.repolls and not self._passed_over

    def _next_claim(self, slots: Fill, room: int, now: float) -> Action | None:
        """The next claim or look. Jobs with a source come first if any are known, because they may have a better
        priority; otherwise last, so that plain jobs don't wait for a look. The looks of a long survey alternate with
        claims of plain jobs, except while a source is open or, in the first survey, might be: these claims take every
        priority, and could overtake a source with a better one. A claim with sources serves both in their order."""
        free = min(slots.free - slots.waiting, self.settings.claim_batch_size)
        alternates = self.sources.surveying and not self.sources.awaits_first_survey and not self.sources.has_open(now)
        sourced_first = self.sources.waiting and not (alternates and self._looked_last)
        if sourced_first and (action := self._next_sourced(free, now)) is not None:
            self._looked_last = isinstance(action, Look)
            return action
        if room > 0 and (now >= min(self._poll_at, self._front_at) or self._then_prefetchable):
            self._looked_last = False
            return self._claim(free, room, now)
        return None if sourced_first else self._next_sourced(free, now)

    def _claim(self, free: int, room: int, now: float) -> Action:
        self._passed_over = False
        tasks: Tasks = "every"
        if self.prefetch and self.in_process:
            self._passed_over = free <= 0
            tasks = "prefetchable" if self._then_prefetchable or free <= 0 else "in_process"
        self._then_prefetchable = tasks == "in_process"
        n = min(free, room) if tasks == "in_process" else room
        if tasks != "prefetchable":
            self._in_process_at = now
        if not self._then_prefetchable:
            self._poll_at = self._front_at = math.inf
        ranges = self.ranges[tasks]
        front = now >= ranges.front_at
        return Claim(tasks, ranges.next(n, front), n, front, now)

    def _next_sourced(self, free: int, now: float) -> Action | None:
        if free <= 0 and not self.prefetch:
            return None
        if now >= self.sources.look_at:
            # Even if prefetched jobs occupy all slots: the look shows whether prefetching must end.
            return Look(self.sources.ranges(), now)
        found = self.sources.next_turns(free, now) if free > 0 else None
        if found is None:
            return None
        (sightings, chosen), n = found, free
        plain = self._plain_up_to(chosen.rest, now)
        # Two claims in parallel, because a claim mostly waits for its statements. But if priorities differ or plain
        # jobs have a turn, one claim must decide the order.
        alike = not plain and sightings[0].position.priority == sightings[-1].position.priority
        if not self.parallel or n < MANY_SLOTS or len(sightings) * JOBS_A_TURN < n or not alike:
            return ClaimSourced([(sightings, n)], chosen.order, plain, chosen.rest, now)
        half = len(sightings) // 2
        parts = [(sightings[:half], n - n // 2), (sightings[half:], n // 2)]
        return ClaimSourced(parts, chosen.order, plain, chosen.rest, now)

    def _plain_up_to(self, rest: int, now: float) -> list[Range]:
        """The ranges in which to ask for plain jobs: none worse than `rest`, the best priority of a source left out."""
        until, none_up_to = self._no_plain
        if now < until and rest <= none_up_to:
            return []
        return [Range(*served, high_priority=rest + 1) for served in self.ranges["every"].served]

    def _room(self, slots: Fill, now: float) -> int:
        """How many jobs to claim: free slots plus prefetch, minus the jobs that already wait in this worker."""
        # Slow jobs are not prefetched: they would wait here while another worker has a free slot. Nothing is prefetched
        # while jobs that never are (in-process, or with a source) wait for a slot: prefetched jobs would take it first.
        starved = self.sources.has_open(now) or (self.in_process and now > self._in_process_at + PREFETCH_SECONDS)
        lately = self._returned_lately(now)
        self.prefetch = 0 if starved or self._seconds > PREFETCH_SECONDS else lately
        if self.prefetch and slots.waiting > self.prefetch // 2:
            return 0  # one large claim costs less than many small ones
        if slots.unsettled > 4 * self.settings.claim_batch_size:
            return 0  # the database writes outcomes more slowly than attempts end
        return min(slots.free + self.prefetch - slots.waiting, self.settings.claim_batch_size)

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
        """The next action of a worker without room. After a second it is no longer announced as idle, which saves
        enqueues the cost of waking it."""
        if self.idle and self._full_since is None:
            self._full_since = now
        elif self.idle and now - (self._full_since or now) > FULL_SECONDS:
            return SetIdle(False)
        return Sleep(min(promote_at, now + PROMOTE_SECONDS))

    # --- results of actions

    def claimed(self, claim: Claim, jobs: Sequence[Claimed], now: float, wall: float) -> bool:
        """Note the jobs that a claim returned. Returns whether there are probably more."""
        more = self.ranges[claim.tasks].learn(
            jobs, claim.n, front=claim.front, seconds=now - claim.began, now=now, wall=wall
        )
        if jobs:
            self._due_again = True
        self.sources.polled(now)
        if more:
            self._poll_at = -math.inf
        else:
            self._full_since, self.drained = None, self._will_be_woken
            if not claim.front:  # only a claim from the front finds jobs with old ids
                self._front_at = min(self._front_at, self.ranges[claim.tasks].front_due)
        return more

    def claimed_sourced(self, claim: ClaimSourced, results: Sequence[ClaimResult], now: float) -> None:
        """Note the results of a claim of jobs with a source, part by part."""
        for (sightings, _), one in zip(claim.parts, results, strict=True):
            self.sources.claimed(sightings, one, claim.began, now)
            if one.jobs:
                self._due_again, self._poll_at = True, -math.inf
            if claim.plain and not one.plain:
                self._no_plain = (now + NO_PLAIN_SECONDS, claim.rest)

    def peeked(self, ready: bool, due: float | None, now: float) -> None:
        """Note whether a peek found ready jobs, and in how many seconds the next job is due (None: no job)."""
        if ready or (due is not None and due <= 0):
            self.woken(now)
        else:
            self._poll_at = math.inf
            self._promote_at = math.inf if due is None else now + due

    def promoted(self, count: int, due: float | None, now: float) -> None:
        """Note that `count` due jobs were made claimable; the next is due in `due` seconds (None: no job)."""
        self._due_again, self._promoted = False, now
        self._promote_at = math.inf if due is None else now + due
        if count:
            self._poll_now()
            for ranges in self.ranges.values():
                ranges.forget()  # their ids may be old
            self.sources.woken(now)

    def set_idle(self, idle: bool) -> None:
        """Note that the worker was announced as idle, or as not idle."""
        self.idle, self._full_since = idle, None
        self.repolls = list(REPOLLS) if idle else []
