"""The jobs with a source, seen from a worker: when to look for them, where the round goes on, and what is closed.

A look is one statement and takes no lock; only if a source seems open is there a claim. A look goes through a bounded
number of sources from a cursor on. If none of them is open and there are more, the next look goes on behind them; once
round, with nothing open, the worker waits for what will open first: a token, the end of a pause, a slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import NoReturn

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StoreError
from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY
from rowlock.core.source import Admission, admit
from rowlock.store import turns
from rowlock.store.engine import Store
from rowlock.store.ids import new_token
from rowlock.store.jobs import Lane

LOOK_SECONDS = 0.1  # between looks while there is nothing
SATURATED_SECONDS = 1.0  # until another worker may have freed a slot; our own tell us
SECONDS_PER_STATEMENT = 1.0  # a round of many looks is repeated the less often
BUSY_SECONDS = 0.02  # another worker had the sources locked
FRESH_SECONDS = 0.1  # how long a look is good for: so late may a better priority be noticed
FEWEST, MOST = 32, 256  # sources in one look
FURTHER = 1024  # in each that goes on behind closed ones
SPLIT = 64  # free slots for which two claims are made side by side, and from which on …
TURN = 2  # … a source's turn is up to so many jobs

LOWEST = MIN_PRIORITY - 1  # before every priority

_PRIORITY = attrgetter("priority")

# Runs a claim with its token, so that a lost reply is not a lost job, and starts what it took.
Claim = Callable[[str, Callable[[], Awaitable[turns.Taken]]], Awaitable[turns.Taken]]


class Turns:
    """A worker's round through the sources."""

    def __init__(self, store: Store, settings: WorkerSettings, worker: str, tasks: Sequence[str]) -> None:
        self._store, self._settings, self._worker = store, settings, worker
        self._lanes = [(queue, task) for queue in settings.queues for task in sorted(tasks)]
        self._plain = [Lane(queue, task) for queue, task in self._lanes]
        self._cursor = ""
        self._left: list[turns.Head] = []  # what the last look found open and no claim has asked for yet
        self._cut = False  # and whether it might have found more
        self._ahead: tuple[list[turns.Head], float] | None = None  # the next look, made beside a claim, and when
        self._plain_at = 0.0  # not before this is there any use in asking for jobs without a source …
        self._plain_none = MAX_PRIORITY  # … up to this priority
        self._looked = 0.0  # when
        self._misses = 0  # claims in a row that took nothing, although a source seemed open
        self._look_at = 0.0  # a round after this looks
        self._wake_at = math.inf  # a sleeping worker wakes for it
        self.waiting = True  # the last look saw jobs with a source; nobody knows before the first
        self.open = False  # something with a source could start, if there were a slot
        self.closed = False  # there are jobs with a source, and none of them may start
        self._start_round()

    def _start_round(self) -> None:
        self._asked = self._lanes  # those that a round which has found nothing yet has not been through
        self._places: dict[tuple[str, str], turns.Place] = {}  # and where it goes on in them
        self._passed: set[tuple[str, str, int, str]] = set()  # what it has passed
        self._looks = 0

    def stir(self) -> None:
        """Something may have come or opened. Where no job has a source, looks are not worth more than ten a second."""
        self._left, self._ahead, self._plain_at = [], None, 0.0
        self._look_at = self._wake_at = 0.0 if self.waiting else self._looked + LOOK_SECONDS

    def settled(self) -> None:
        """Slots of sources may be free again."""
        if self.waiting:
            self._look_at = self._wake_at = 0.0

    @property
    def wait(self) -> float:
        """Seconds until it is time to look, if there is a round anyway."""
        return max(0.0, self._look_at - time.monotonic())

    @property
    def sleep(self) -> float:
        """Seconds until a look is worth a round."""
        return max(0.0, self._wake_at - time.monotonic())

    async def claim(self, n: int, claim: Claim) -> bool:
        """Claim for `n` free slots, jobs without a source among them in their turn; answers whether there is more. With
        none, only look whether something could start."""
        self._use_ahead()
        fresh = not self._left or time.monotonic() > self._looked + FRESH_SECONDS
        if fresh:
            heads = await self._look(n)
            admissions = [(head, admit(head.gate)) for head in heads]
            self._left = [head for head, admission in admissions if admission.room > 0]
            self._cut = any(head.last for head in heads)
            self.open = bool(self._left)
            if not self._left:
                return self._nothing_open(heads, [admission for _, admission in admissions])
        if n == 0:
            return False
        candidates = self._next(n)
        plain = self._plain_up_to(rest := self._rest(candidates))
        taking = self._take(candidates, plain, n, claim)
        if self._cut and n >= SPLIT and len(self._left) * TURN < n:
            # The next claim will want a look: it is made meanwhile.
            taken = await self._looking_ahead(taking, candidates[-1].source, n)
        else:
            taken = await taking
        if not taken.jobs and fresh and self._left:
            # Others have those locked, or they are past their latest start: what comes behind does not wait for that.
            candidates, self._left = self._left, []
            taken = await self._take(candidates, self._plain, n, claim)
        if plain and not taken.plain:
            self._plain_at, self._plain_none = time.monotonic() + LOOK_SECONDS, rest
        self.closed = False
        self._start_round()
        if not taken.jobs:
            self._left, self._ahead = [], None
            if not fresh:  # what was left of the last look is closed or gone by now
                return await self.claim(n, claim)
            # Others have them locked; or all are past their latest start, and the next sweep ends them.
            self._misses, self.open = self._misses + 1, False
            self._look_at = self._wake_at = time.monotonic() + min(BUSY_SECONDS * 2**self._misses, SATURATED_SECONDS)
            return False
        self._misses = 0
        self._cursor = taken.last_source or ""
        self.open = taken.more or bool(self._left) or self._cut
        best = candidates[0].priority
        if self._ahead is not None:
            self._left = []  # it begins behind those that were served
        elif self._cut:  # there are sources that the look did not see: a second turn must wait for theirs
            self._left = [head for head in self._left if head.priority == best]
        else:  # those that were served come again, behind the others of their priority; some were not reached
            served, reached = {job.source for job in taken.jobs}, max(map(_PRIORITY, taken.jobs))
            self._left += [head for head in candidates if head.source in served or head.priority > reached]
            self._left.sort(key=_PRIORITY)
        # What was left out may be closed only for now: a full source, an empty bucket.
        self._look_at = self._wake_at = 0.0 if self.open else self._looked + LOOK_SECONDS
        return self.open

    async def _look(self, n: int) -> list[turns.Head]:
        most = FURTHER if self._passed else _many(n)
        heads = await self._store.run(turns.look(self._asked, self._cursor, most, LOWEST, self._places))
        self._looked, self._wake_at = time.monotonic(), math.inf
        self._looks += 1
        self.waiting = bool(heads) or bool(self._passed)
        return heads

    def _use_ahead(self) -> None:
        """What the look beside the last claim found open. It is older than that claim: some of it may be taken, so the
        claim that finds nothing there looks by itself."""
        if self._ahead is not None and not self._left:
            heads, self._looked = self._ahead
            self._left = [head for head in heads if admit(head.gate).room > 0]
            self._cut = any(head.last for head in heads)
        self._ahead = None

    async def _take(self, heads: list[turns.Head], plain: list[Lane], n: int, claim: Claim) -> turns.Taken:
        """Many sources are taken from by two claims side by side: most of a claim is waiting for its statements. Not
        where priorities differ, or jobs without a source have a turn: who comes first is decided within one claim."""
        alike = not plain and heads[0].priority == heads[-1].priority
        if self._store.writers < 2 or n < SPLIT or len(heads) * TURN < n or not alike:
            return await self._take_from(heads, plain, n, claim)
        half = len(heads) // 2
        halves = (heads[:half], n - n // 2), (heads[half:], n // 2)
        # Both to their end, also if one fails: a claim that nobody waits for could take jobs after a stop.
        taken = await asyncio.gather(
            *(self._take_from(some, [], slots, claim) for some, slots in halves), return_exceptions=True
        )
        first, second = (one if isinstance(one, turns.Taken) else _raised(one) for one in taken)
        return turns.Taken(first.jobs + second.jobs, first.more or second.more, second.last_source or first.last_source)

    async def _take_from(self, heads: list[turns.Head], plain: list[Lane], n: int, claim: Claim) -> turns.Taken:
        token, lease = new_token(), self._settings.lease_seconds
        return await claim(token, lambda: self._store.run(turns.take(self._worker, token, heads, plain, n, lease)))

    async def _looking_ahead(self, taking: Awaitable[turns.Taken], cursor: str, n: int) -> turns.Taken:
        """A claim, and beside it the look for the one after it, from the last source that has a turn now. One after the
        other they are the chain that bounds a busy worker, and each waits for the other's processor."""
        looking = asyncio.ensure_future(self._store.run(turns.look(self._lanes, cursor, _many(n), LOWEST)))
        try:
            taken = await taking
            with contextlib.suppress(StoreError):  # the next claim looks by itself
                self._ahead = (await looking, time.monotonic())
            return taken
        finally:
            looking.cancel()

    def _next(self, slots: int) -> list[turns.Head]:
        """As many sources as there are slots; the others stay for the next claims, and those that are served come again
        behind them. Locking and counting all that a look has found would cost as much again as what is taken, and so
        would a look for each claim. Where there are many slots and still more sources, a turn may be two jobs: that is
        half the sources to find, lock and count."""
        turn = TURN if self._cut and slots >= SPLIT else 1
        chosen: set[str] = set()
        for head in self._left:
            if slots <= 0:
                break
            if head.source not in chosen:
                chosen.add(head.source)
                slots -= min(turn, admit(head.gate).room)
        rest = min((head.priority for head in self._left if head.source not in chosen), default=MAX_PRIORITY)
        candidates, left = list[turns.Head](), list[turns.Head]()
        for head in self._left:  # each in all of its lanes, except those that come behind what waits for the next claim
            (candidates if head.source in chosen and head.priority <= rest else left).append(head)
        self._left = left
        return candidates

    def _rest(self, candidates: Sequence[turns.Head]) -> int:
        """The best priority that sources which are no candidates may have."""
        unseen = candidates[-1].priority if self._cut else MAX_PRIORITY
        return min(self._left[0].priority, unseen) if self._left else unseen

    def _plain_up_to(self, rest: int) -> list[Lane]:
        """Where to ask for jobs without a source: behind `rest` they are not yet next."""
        if time.monotonic() < self._plain_at and rest <= self._plain_none:
            return []
        return [lane._replace(high_priority=rest + 1) for lane in self._plain] if rest < MAX_PRIORITY else self._plain

    def _nothing_open(self, heads: Sequence[turns.Head], admissions: Sequence[Admission]) -> bool:
        """Answers whether to look on at once."""
        ends = [head for head in heads if head.last]
        if ends:
            for head in ends:
                lane = (head.queue, head.task)
                floor = self._places.get(lane, (MIN_PRIORITY - 1, ""))[0]
                if (*lane, head.priority, head.source) in self._passed:
                    floor = head.priority  # round: every source of this priority is closed
                self._places[lane] = (floor, head.source)
            self._asked = [(head.queue, head.task) for head in ends]
            self._passed.update((head.queue, head.task, head.priority, head.source) for head in heads)
            self._look_at = 0.0
            return True
        self.closed = self.waiting
        if self.closed:
            waits = [SATURATED_SECONDS if a.wait is None else a.wait for a in admissions if a.why != "disabled"]
            pause = min([*waits, SATURATED_SECONDS if self._passed else self._settings.poll_interval_seconds])
            slow = SECONDS_PER_STATEMENT * self._looks if self._looks > 1 else BUSY_SECONDS
            self._look_at = self._wake_at = self._looked + max(pause, slow)
        else:
            self._look_at = self._looked + LOOK_SECONDS
        self._start_round()
        return False


def _many(n: int) -> int:
    """How many sources to look at for `n` free slots."""
    return min(max(2 * n, FEWEST), MOST)


def _raised(error: BaseException) -> NoReturn:
    raise error
