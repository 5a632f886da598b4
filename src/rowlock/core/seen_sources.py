"""What one worker knows about the sources that have ready jobs: which of them are open, and whose turn is next.

A survey goes through all sources that have ready jobs, in looks of a bounded size; claims are made from what it showed.
A closed source stays known together with the moment at which it opens, so thousands of closed sources cost one survey
now and then, and delay no claim. Among the open sources of the best priority, the next turn belongs to the one that was
served longest ago. Jobs without a source have one turn together, under the name "".

A survey is out of date as soon as it is made: other workers claim and settle meanwhile. That is harmless, because a
claim counts again under its locks. A source that is wrongly taken for open costs one claim that brings nothing; one
that is wrongly taken for closed would stand still. So in doubt a source counts as open: where one of its attempts has
ended here after a look had begun, the look may not have seen that end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.core.job import MIN_PRIORITY, Claimed
from rowlock.core.source import Gate, admit, class_of
from rowlock.core.turn_order import HeadName, TurnOrder

FRESH_SECONDS = 0.1  # between surveys while jobs are claimed: a better priority is noticed this late
CLOSED_SECONDS = 1.0  # between surveys while all sources are closed; another worker may free a slot of one
LOOKS_A_SECOND = 1.0  # at most, meanwhile
# Looks may take a tenth of the time while jobs can start, a fifth while none can: their length, times this, is a pause.
SHARE_BESIDE_JOBS, SHARE = 9, 4
BUSY_SECONDS = 0.02  # until a source is tried again after a claim got nothing of it; doubled each time
LONGEST_BUSY = 0.32
LOOK, WHOLE_LOOK = 256, 1024  # sources in one look: while jobs can start, and while none can
MOST = 20_000  # sources in one survey; the next one goes on behind them
MANY_SLOTS, JOBS_A_TURN = (
    64,
    2,
)  # with so many free slots, a turn is up to two jobs where there are more sources than slots

LaneName = tuple[str, str]  # queue and task
Place = tuple[int, str]  # a priority and a source
FRONT: Place = (MIN_PRIORITY - 1, "")


class Range(NamedTuple):
    """What a look goes through in one lane: the next sources behind a place, in the order of priority and name."""

    queue: str
    task: str
    low_priority: int = FRONT[0]
    low_source: str = FRONT[1]
    most: int = LOOK  # sources


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

    group: str  # its class
    gate: Gate
    room: int = 0  # jobs that it lets start, as far as is known: a claim counts again
    heads: dict[HeadName, int] = field(default_factory=dict)  # -> the survey that showed it last
    open: bool = False
    opens_at: float = math.inf  # of a closed one; inf: when a slot of it is freed, or an operator opens it


@dataclass(slots=True)
class SeenSources:
    """The sources as far as one worker has seen them."""

    lanes: Sequence[LaneName]
    poll_seconds: float  # between surveys when only an operator can open a source
    waiting: bool = True  # there are jobs with a source; unknown before the first look
    look_at: float = 0.0
    _known: dict[str, _Known] = field(default_factory=dict)
    _timers: list[tuple[float, str]] = field(default_factory=list)  # heap: when closed sources open
    _freed: dict[str, float] = field(default_factory=dict)  # source or class -> when an attempt of it last ended here
    _busy: dict[str, tuple[int, float]] = field(default_factory=dict)  # claims that got nothing of a source, until when
    _order: TurnOrder = field(default_factory=TurnOrder)
    # The survey that is under way.
    surveyed: bool = False  # the first one has come to its end
    _places: dict[LaneName, Place] = field(default_factory=dict)  # how far it has come; absent: to the lane's end
    _survey: int = 1
    _looks: int = 0
    _seconds: float = 0.0  # that its looks took
    _shown: int = 0
    _cut: bool = False  # the last one was ended before it had shown everything
    _again: bool = False  # woken meanwhile: what it has passed may have changed
    _rested: float = 0.0  # when the next one may begin that a wake-up asks for
    _looked: float = -math.inf

    def __post_init__(self) -> None:
        self._places = dict.fromkeys(self.lanes, FRONT)

    # --- told

    def woken(self, now: float) -> None:
        """Jobs may have come, or sources may have opened: make a survey soon."""
        if self._looks:
            self._again = True
        else:
            self.look_at = min(self.look_at, max(now, self._rested, 0.0 if self.waiting else self._next_without()))

    def polled(self, now: float) -> None:
        """Jobs without a source were asked for: where none with a source is known, look for them as well."""
        if not self.waiting:
            self.look_at = min(self.look_at, max(now, self._next_without()))

    def _next_without(self) -> float:
        return self._looked + FRESH_SECONDS

    def freed(self, source: str, attempts: int, now: float) -> None:
        """Attempts of this source have ended, and their outcomes are written."""
        group = class_of(source)
        self._freed[source] = self._freed[group] = now
        self._order.full_classes.discard(group)
        if (known := self._known.get(source)) is None:
            return
        known.room += attempts
        if not known.open and known.opens_at == math.inf:
            self._open(known)

    # --- asked

    def next_at(self, now: float) -> float:
        """When something may be done for a free slot."""
        return now if self.has_open(now) else min(self.look_at, self._timers[0][0] if self._timers else math.inf)

    def has_open(self, now: float) -> bool:
        """Whether a job of some source could start, as far as is known."""
        while self._timers and self._timers[0][0] <= now:
            at, source = heapq.heappop(self._timers)
            known = self._known.get(source)
            if known is not None and not known.open and known.opens_at == at:
                self._open(known)
        return self.surveyed and self._order.has_next

    @property
    def surveying(self) -> bool:
        """Whether a survey is under way."""
        return self._looks > 0

    @property
    def all_closed(self) -> bool:
        """Whether there are jobs with a source, and none of them may start."""
        return self.waiting and self.surveyed and not self._order.has_next

    def ranges(self) -> list[Range]:
        """Where the next look goes: on behind the last one."""
        sources = LOOK if self.surveyed and self._order.has_next else WHOLE_LOOK
        most = max(32, sources // max(1, len(self._places)))
        return [Range(*lane, *place, most) for lane, place in self._places.items()]

    def turns(self, n: int, now: float) -> Turns | None:
        """Whose turn it is, for `n` free slots; None if nobody's is known."""
        if not self.has_open(now):
            return None
        turn = JOBS_A_TURN if n >= MANY_SLOTS and len(self._order) >= n else 1
        choice = self._order.choose(n, lambda source: max(1, min(turn, self._known[source].room)))
        heads = [Head(*one.head, False, self._known[one.source].gate) for one in choice.turns]
        return Turns(heads, choice.sources, choice.rest)

    def _open(self, known: _Known) -> None:
        known.open, has_total = True, known.gate.total is not None
        for head in known.heads:
            self._order.open(head, has_total=has_total)

    def _close(self, known: _Known) -> None:
        known.open = False
        for head in known.heads:
            self._order.close(head)

    # --- what looks and claims brought

    def saw(self, ranges: Sequence[Range], heads: Sequence[Head], began: float, now: float) -> None:
        """Take in what a look showed."""
        self._looked = now
        self._looks += 1
        self._seconds += now - began
        self._shown += len(heads)
        for span in ranges:
            self._places.pop((span.queue, span.task), None)
        for head in heads:
            known = self._known.get(head.source)
            if known is None:
                known = self._known[head.source] = _Known(class_of(head.source), head.gate)
            known.heads[head[:4]] = self._survey
            self._stands(head.source, known, head.gate, began, now)
            if head.end:
                self._places[head.queue, head.task] = (head.priority, head.source)
        self.waiting = bool(self._known)
        if self._places and self._shown < MOST:
            self.look_at = now + (SHARE_BESIDE_JOBS * (now - began) if self.has_open(now) else 0.0)
        else:
            self._end_survey(now)

    def _stands(self, source: str, known: _Known, gate: Gate, began: float, now: float) -> None:
        """Take in how a source stood at some moment since `began`."""
        admission, group = admit(gate), known.group
        known.gate, known.room = gate, admission.room
        if admission.why == "class" and self._freed.get(group, -math.inf) < began:
            self._order.full_classes.add(group)
        elif admission.room > 0:
            self._order.full_classes.discard(group)
        opens_at = now
        if admission.room <= 0 and admission.why != "class":
            opens_at = math.inf if admission.wait is None else now + admission.wait
        if opens_at == math.inf and self._freed.get(source, -math.inf) >= began:
            opens_at = now
        opens_at = max(opens_at, self._busy[source][1] if source in self._busy else now)
        if opens_at <= now:
            self._open(known)
        else:
            self._close(known)
            if opens_at < math.inf and opens_at != known.opens_at:
                heapq.heappush(self._timers, (opens_at, source))
            known.opens_at = opens_at

    def _end_survey(self, now: float) -> None:
        """What a survey did not show has no more ready jobs."""
        for source, known in [*self._known.items()]:
            for head in [head for head, survey in known.heads.items() if survey < self._survey]:
                self._drop(source, known, head)
        self._timers = [(one.opens_at, s) for s, one in self._known.items() if not one.open and one.opens_at < math.inf]
        heapq.heapify(self._timers)
        self._busy = {source: busy for source, busy in self._busy.items() if busy[1] > now - LONGEST_BUSY}
        self._freed = {name: at for name, at in self._freed.items() if at > now - self._seconds - CLOSED_SECONDS}
        self.waiting, self.surveyed = bool(self._known), True
        self._cut = bool(self._places)
        self._rested = now if self._looks == 1 else now + SHARE * self._seconds
        self.look_at = self._next_survey(now)
        if not self._cut:
            self._places = dict.fromkeys(self.lanes, FRONT)
        self._survey, self._looks, self._seconds, self._shown, self._again = self._survey + 1, 0, 0.0, 0, False

    def _next_survey(self, now: float) -> float:
        if self.has_open(now):  # jobs that can start come before further looks
            return now + max(CLOSED_SECONDS if self._cut else FRESH_SECONDS, SHARE_BESIDE_JOBS * self._seconds)
        if self._again or self._cut:
            return self._rested
        if not self.waiting:
            return math.inf
        slots_elsewhere = self._order.full_classes or any(one.opens_at == math.inf for one in self._known.values())
        pause = max(CLOSED_SECONDS, self._looks / LOOKS_A_SECOND, SHARE * self._seconds)
        return now + (pause if slots_elsewhere else max(pause, self.poll_seconds))

    def took(self, heads: Sequence[Head], taken: Taken, began: float, now: float) -> None:
        """Take in what a claim that was sent at `began` brought."""
        self._order.started(taken.jobs)
        served, may_have_more = {job.source for job in taken.jobs}, {name[3] for name in taken.left}
        for source in dict.fromkeys(head.source for head in heads):
            if (known := self._known.get(source)) is None:
                continue
            if source in served:
                self._busy.pop(source, None)
            elif source in taken.locked or source not in may_have_more or not taken.jobs:
                misses = self._busy.get(source, (0, 0.0))[0] + 1
                self._busy[source] = (misses, now + min(BUSY_SECONDS * 2**misses, LONGEST_BUSY))
                self.look_at = min(self.look_at, self._busy[source][1])
            self._stands(source, known, taken.gates.get(source, known.gate), began, now)
        for head in heads:
            known, name = self._known.get(head.source), head[:4]
            if known is not None and head.source not in taken.locked and name not in taken.left:
                self._drop(head.source, known, name)
        if self._cut and not self.has_open(now):
            self.look_at = min(self.look_at, self._rested)

    def _drop(self, source: str, known: _Known, head: HeadName) -> None:
        """This head has no more ready jobs."""
        known.heads.pop(head, None)
        self._order.close(head)
        if not known.heads:
            del self._known[source]
