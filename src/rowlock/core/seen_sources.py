"""What a worker knows about the sources that have ready jobs: where it has looked, which are open, whose turn is next.

A look shows a bounded number of sources in each lane (queue and task), in the order of priority and name, and the next
look goes on behind them. During the first cycle through all lanes, a source is claimed from only if every lane has been
looked at up to its place: a better priority, or another source's turn, may lie before it. After a cycle everything is
known, and further cycles keep that up to date beside the claims.

Closed sources stay known, with the moment at which they open: thousands of them cost one cycle, and delay nobody. The
next turn belongs to the source, among those of the best priority, that was served longest ago. Jobs without a source
have one turn together, under the name "".
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY, Claimed
from rowlock.core.source import Admission, Gate, admit, class_of

PLAIN = ""  # stands for the jobs without a source
FRESH_SECONDS = 0.1  # between looks while jobs are claimed: a better priority is noticed this late
CLOSED_SECONDS = 1.0  # between looks while all sources are closed; another worker may free a slot of one
SHARE = 4  # looks may take one fifth of the time: each is followed by a pause of four times its length
BUSY_SECONDS = 0.02  # until a source that another worker had locked is tried again; doubled each time
FEWEST, MOST = 32, 256  # sources in one look
FURTHER = 1024  # sources in a look that follows one that found all closed
MANY_SLOTS, TURN = 64, 2  # with so many free slots, a turn is up to two jobs where there are more sources than slots
MOST_OPEN = 1024  # open sources that are remembered; beyond, a source is found again in the next cycle
MOST_KNOWN = 20_000  # sources and turns that are remembered

LaneName = tuple[str, str]  # queue and task
HeadName = tuple[str, str, int, str]  # queue, task, priority and source
Place = tuple[int, str]  # a priority and a source
FRONT: Place = (MIN_PRIORITY - 1, "")
END: Place = (MAX_PRIORITY + 1, "")


class Range(NamedTuple):
    """What a look goes through in one lane: from a place, exclusive, up to a priority, exclusive."""

    queue: str
    task: str
    low_priority: int = FRONT[0]
    low_source: str = FRONT[1]
    high_priority: int = END[0]
    most: int = MOST  # sources


class Head(NamedTuple):
    """A source with ready jobs in one lane and priority, and how it stood when it was looked at."""

    queue: str
    task: str
    priority: int
    source: str
    end: bool  # the look through this lane ended here, because it was long enough
    gate: Gate


class Taken(NamedTuple):
    """What a claim of jobs with a source brought."""

    jobs: list[Claimed]
    plain: bool = False  # there were jobs without a source
    left: Collection[HeadName] = ()  # those that may have more jobs
    gates: Mapping[str, Gate] = {}  # how the sources stand now
    locked: Collection[str] = ()  # sources from which another worker was claiming


class Turns(NamedTuple):
    """Whom the next claim is for."""

    heads: list[Head]
    order: list[str]  # the sources in turn, PLAIN among them
    rest: int  # best priority of the sources that are not among them; plain jobs of a worse one are not yet next


@dataclass(slots=True)
class _Known:
    """A source with ready jobs."""

    gate: Gate
    heads: dict[tuple[str, str, int], int]  # (queue, task, priority) -> the cycle in which it was seen
    opens_at: float = math.inf  # inf also: when a slot of it is freed


@dataclass(slots=True)
class SeenSources:
    """The sources as far as one worker has seen them."""

    lanes: Sequence[LaneName]
    poll_seconds: float  # between looks when only an operator can open a source
    waiting: bool = True  # there are jobs with a source; unknown before the first look
    look_at: float = 0.0
    _known: dict[str, _Known] = field(default_factory=dict)
    _open: dict[str, None] = field(default_factory=dict)  # the open ones among them, but for their class
    _full_classes: set[str] = field(default_factory=set)
    _timers: list[tuple[float, str]] = field(default_factory=list)  # when closed ones open
    _misses: dict[str, int] = field(default_factory=dict)  # claims in a row that got nothing of a source
    _served: dict[Place, int] = field(default_factory=dict)  # (priority, source) -> number of its last turn
    _turn: int = 0  # number of the last turn
    _lap: int = 0  # number of the last turn before this lap; in the first cycle each source has one turn in a lap
    _complete: bool = False  # a whole cycle was made, and all that it showed is remembered
    _overflow: bool = False  # this cycle has shown more than is remembered
    _places: dict[LaneName, Place] = field(default_factory=dict)  # how far this cycle has come; absent: to its end
    _cycle: int = 1
    _cycle_seconds: float = 0.0  # that the looks of this cycle took
    _cycle_looks: int = 0
    _last_looks: int = 1  # in the last cycle
    _next_cycle: float = 0.0  # when another cycle that a wake-up asks for may begin
    _hurry: bool = True  # no pauses between the looks of this cycle
    _hurried: bool = True  # this cycle was begun for a wake-up
    _again: bool = False  # woken during this cycle: make another one
    _looked: float = -math.inf

    def __post_init__(self) -> None:
        self._places = dict.fromkeys(self.lanes, FRONT)

    # --- told

    def woken(self, now: float) -> None:
        """Jobs may have come, or sources may have opened: make a whole cycle soon."""
        begun = self._cycle_looks > 0
        self._hurry, self._again = True, begun
        soonest = now if begun else self._next_cycle
        self.look_at = min(self.look_at, max(now, soonest, 0.0 if self.waiting else self._looked + FRESH_SECONDS))

    def polled(self, now: float) -> None:
        """Jobs without a source were asked for: where none with a source is known, look for them as well."""
        if not self.waiting:
            self.look_at = min(self.look_at, max(now, self._looked + FRESH_SECONDS))

    def freed(self, source: str, now: float) -> None:
        """An attempt of this source has ended."""
        self._full_classes.discard(class_of(source))
        known = self._known.get(source)
        if known is not None and known.opens_at == math.inf:
            self._open_at(source, known, now, now)

    # --- asked

    def next_at(self, now: float) -> float:
        """When something may be done for a free slot."""
        return now if self.has_open(now) else min(self.look_at, self._timers[0][0] if self._timers else math.inf)

    def has_open(self, now: float) -> bool:
        """Whether a job of some source could start, as far as is known."""
        self._open_due(now)
        return self._startable()

    def _startable(self) -> bool:
        return any(class_of(source) not in self._full_classes for source in self._open)

    @property
    def all_closed(self) -> bool:
        """Whether there are jobs with a source, and none of them may start."""
        return self.waiting and self._cycle > 1 and not self._startable()

    def ranges(self, n: int) -> list[Range]:
        """Where to look for `n` free slots: on behind the last look, and at better priorities from their front."""
        further = self._cycle_looks > 0 and not self._open
        most = FURTHER if further else min(max(2 * n, FEWEST), MOST)
        ranges = [Range(*lane, *place, END[0], most) for lane, place in self._places.items()]
        levels = [name[2] for source in self._open for name in self._known[source].heads]
        if levels and self._cycle_looks:
            best = min(levels)
            ranges += [Range(*lane, high_priority=best, most=FEWEST) for lane in self.lanes if best > MIN_PRIORITY]
        return ranges

    def turns(self, n: int, now: float) -> Turns | None:
        """Whose turn it is, for `n` free slots; None if nobody's is known."""
        self._open_due(now)
        candidates = self._in_turn()
        if not candidates:
            return None
        turn = TURN if n >= MANY_SLOTS and len(candidates) >= n else 1
        chosen, slots = dict[str, None](), n
        for _, _, source, _ in candidates:
            if slots <= 0:
                break
            if source not in chosen:
                chosen[source] = None
                slots -= 1 if turn == 1 else max(1, min(turn, admit(self._known[source].gate).room))
        unseen = MAX_PRIORITY if self._complete else min(self._places.values(), default=END)[0]
        rest = min([unseen, *(c[0] for c in candidates if c[2] not in chosen)])
        heads = [
            Head(name[0], name[1], priority, source, False, self._known[source].gate)
            for priority, _, source, name in candidates
            if source in chosen and priority <= rest
        ]
        best = candidates[0][0]
        plain = (best, self._served.get((best, PLAIN), 0), PLAIN, None)
        ordered = sorted([plain, *candidates], key=_TURN_ORDER)
        order = dict.fromkeys(c[2] for c in ordered if c[2] in chosen or c[2] == PLAIN)
        return Turns(heads, list(order), rest)

    def _in_turn(self) -> list[tuple[int, int, str, tuple[str, str, int]]]:
        """The heads that may be claimed from, best priority first, longest waiting first."""
        horizon = END if self._complete else min(self._places.values(), default=END)
        known, served = self._known, self._served
        candidates = [
            (name[2], served.get((name[2], source), 0), source, name)
            for source in self._open
            if class_of(source) not in self._full_classes
            for name in known[source].heads
            if (name[2], source) <= horizon
        ]
        candidates.sort(key=_TURN_ORDER)
        if not candidates and not self._complete and self._startable():
            self.look_at = -math.inf  # what is open lies behind a place that was not looked at
        if self._complete or not candidates:
            return candidates
        first = [candidate for candidate in candidates if candidate[1] <= self._lap]
        second = [candidate for candidate in candidates if candidate[1] > self._lap]
        if first and not (second and second[0][0] < first[0][0]):
            return first
        if not first and self._places:
            self.look_at = -math.inf  # the sources behind have their turn before these have a second one
            return []
        self._lap = self._turn
        return candidates

    # --- what looks and claims brought

    def saw(self, ranges: Sequence[Range], heads: Sequence[Head], began: float, now: float) -> None:
        """Take in what a look showed."""
        self._cycle_looks += 1
        self._looked = now
        if self._cycle_looks == 1:
            self._cycle_seconds, self._hurried, self.waiting = 0.0, self._hurry, bool(heads)
        self._cycle_seconds += now - began
        self.waiting = self.waiting or bool(heads)
        walked = [span for span in ranges if span.high_priority == END[0]]
        for span in walked:
            self._places.pop((span.queue, span.task), None)
        for head in heads:
            self._note(head, now)
            if head.end:
                self._places[head.queue, head.task] = (head.priority, head.source)
        if not self._places:
            self._end_cycle(now)
        self.look_at = self._next_look(now - began, now)

    def _next_look(self, seconds: float, now: float) -> float:
        begun, has_open = self._cycle_looks > 0, self.has_open(now)
        if begun and not self._complete and not self._in_turn():
            return now
        if self._hurry and not has_open:
            return now if begun else max(now, self._next_cycle)
        if has_open:  # jobs that can start come before further looks
            return now + max(FRESH_SECONDS, SHARE * seconds)
        if not self.waiting:
            return math.inf
        if not self._complete:  # more sources than are remembered, all of them closed
            return now + CLOSED_SECONDS * self._last_looks
        slots_elsewhere = self._full_classes or any(one.opens_at == math.inf for one in self._known.values())
        return now + (CLOSED_SECONDS if begun or slots_elsewhere else max(CLOSED_SECONDS, self.poll_seconds))

    def _note(self, head: Head, now: float) -> None:
        source = head.source
        known = self._known.get(source)
        if known is None:
            known = self._known[source] = _Known(head.gate, {}, 0.0)
        known.gate = head.gate
        known.heads[head.queue, head.task, head.priority] = self._cycle
        admission, misses = admit(head.gate), self._misses.get(source, 0)
        if misses > 1 and admission.room > 0:  # it seemed open before, and a claim got nothing
            if known.opens_at == 0.0:
                self._open_at(source, known, now + min(BUSY_SECONDS * 2**misses, CLOSED_SECONDS), now)
        else:
            self._admit(source, known, admission, now)
        if len(self._known) > MOST_KNOWN:
            self._drop(next(iter(self._known)))

    def _admit(self, source: str, known: _Known, admission: Admission, now: float) -> None:
        if admission.why == "class":
            self._full_classes.add(class_of(source))
        elif admission.room > 0:
            self._full_classes.discard(class_of(source))
        if admission.room > 0 or admission.why == "class":
            self._open_at(source, known, now, now)
        else:
            self._open_at(source, known, math.inf if admission.wait is None else now + admission.wait, now)

    def _open_at(self, source: str, known: _Known, at: float, now: float) -> None:
        if at <= now:
            known.opens_at = at
            self._open[source] = None
            return
        self._open.pop(source, None)
        if at < math.inf and abs(at - known.opens_at) > 0.01:  # else its timer is set: another look has shown it again
            heapq.heappush(self._timers, (at, source))
            known.opens_at = at
        elif at == math.inf:
            known.opens_at = at

    def _open_due(self, now: float) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, source = heapq.heappop(timers)
            known = self._known.get(source)
            if known is not None and known.opens_at == at:
                self._open[source] = None

    def _end_cycle(self, now: float) -> None:
        """Every lane was looked at to its end: what was not seen has no more jobs."""
        for source in [*self._known]:
            heads = self._known[source].heads
            for name in [name for name, cycle in heads.items() if cycle < self._cycle]:
                del heads[name]
            if not heads:
                self._forget(source)
        self._complete = not self._overflow
        if self._hurried:  # others do not delay the answer to a wake-up: it may be the first in a long time
            self._next_cycle = now + (SHARE * self._cycle_seconds if self._cycle_looks > 1 else 0.0)
        self._places = dict.fromkeys(self.lanes, FRONT)
        self._last_looks, self._cycle_looks = self._cycle_looks, 0
        self._cycle, self._lap = self._cycle + 1, self._turn
        self._hurry, self._again, self._overflow = self._again, False, False

    def took(self, heads: Sequence[Head], taken: Taken, now: float) -> None:
        """Take in what a claim brought."""
        for job in taken.jobs:
            self._turn += 1
            place = (job.priority, job.source or PLAIN)
            self._served.pop(place, None)
            self._served[place] = self._turn
            self._misses.pop(place[1], None)
        while len(self._served) > MOST_KNOWN:
            del self._served[next(iter(self._served))]
        served, may_have_more = {job.source for job in taken.jobs}, {name[3] for name in taken.left}
        for source in {head.source: None for head in heads}:
            known = self._known.get(source)
            if known is None:
                continue
            known.gate = taken.gates.get(source, known.gate)
            admission = admit(known.gate)
            if source in taken.locked:
                misses = self._misses[source] = self._misses.get(source, 0) + 1
                self._open_at(source, known, now + min(BUSY_SECONDS * 2**misses, CLOSED_SECONDS), now)
            elif admission.room <= 0:
                self._admit(source, known, admission, now)
            elif source not in served and source not in may_have_more:
                self._misses[source] = self._misses.get(source, 0) + 1
        for head in heads:
            known = self._known.get(head.source)
            name = (head.queue, head.task, head.priority)
            if known is not None and head.source not in taken.locked and (*name, head.source) not in taken.left:
                known.heads.pop(name, None)
                if not known.heads:
                    self._forget(head.source)
        if len(self._open) > MOST_OPEN and not self._complete:
            for job in taken.jobs:
                self._drop(job.source or PLAIN)
        if self._hurry and self._cycle_looks > 0 and not self._startable():
            self.look_at = min(self.look_at, now)  # the claim has come between the looks of this cycle

    def _drop(self, source: str) -> None:
        self._overflow = True
        self._forget(source)

    def _forget(self, source: str) -> None:
        self._known.pop(source, None)
        self._open.pop(source, None)


_TURN_ORDER = itemgetter(0, 1, 2)
