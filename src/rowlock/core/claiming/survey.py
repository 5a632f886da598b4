"""What one worker knows about the sources that have ready jobs: which are open, and which has the next turn.

One look reads a bounded number of these sources; a survey is a series of looks that reads all of them. Claims use what
the surveys found. The worker remembers when each closed source opens, so thousands of closed sources cost one survey
now and then and don't delay claims. Among the open sources of the best priority, the next turn goes to the one that was
served longest ago. Plain jobs share one turn, under the name PLAIN.

A survey is out of date as soon as it is made, because other workers claim and settle meanwhile. That is harmless: each
claim locks its sources and checks their limits anew. If the worker wrongly believes that a source is open, one claim
comes back empty; if it wrongly believes that a source is closed, jobs wait for no reason. So in doubt, the worker takes
a source for open: if an attempt of the source has ended here since a look began, the look may have missed that.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import LOOK, PLAIN, Position, QueueTask, Sighting, SourceRange, before_all
from rowlock.core.job import MAX_PRIORITY, Claimed
from rowlock.core.sources.admission import Gate, admit, class_of

REMEMBERED = 40_000  # (priority, source) pairs whose last turn is remembered
FRESH_SECONDS = 0.1  # between surveys while jobs are claimed, so that jobs of a better priority are soon noticed
CLOSED_SECONDS = 1.0  # between surveys while all sources are closed, because another worker may free a slot
LOOKS_A_SECOND = 1.0  # limit while all sources are closed
# After a look, the worker pauses this many times as long as the look took: looks take a tenth of its time while jobs
# can start, and a fifth while none can.
PAUSE_BESIDE_JOBS, PAUSE = 9, 4
BUSY_SECONDS = 0.02  # before a source is tried again after a claim got none of its jobs; doubled each time
LONGEST_BUSY = 0.32
WHOLE_LOOK = 1024  # sources in one look while no job can start; while jobs can, it is LOOK
MOST = 20_000  # positions of sources in one survey; the next survey continues after them
FIRST_SECONDS = 0.5  # how long plain jobs wait for the first survey: a source may have a better priority
# From 64 free slots on, if at least as many positions are open, each source gets up to two jobs in a turn, so that a
# claim locks half as many sources.
MANY_SLOTS, JOBS_A_TURN = 64, 2
OPEN = -math.inf  # `opens_at` of a source that is open now


class Rank(NamedTuple):
    """The place of a position in the order of turns: the smallest rank has the next turn."""

    priority: int
    served: int  # sequence number of this source's last start at this priority
    source: str
    position: Position
    heap_key: str  # the class of the source, if a limit for the whole class (a total) applies; else ""


class Choice(NamedTuple):
    """The positions that the next claim reads, and the order in which it serves their sources."""

    ranks: list[Rank]
    order: list[str]  # their sources in the order of their turns, with PLAIN where plain jobs have theirs
    rest: int  # best priority of the sources left out; the plain jobs of this claim may not have a worse one


@dataclass(slots=True)
class TurnOrder:
    """One worker's open positions in the order of their turns: best priority first, then longest unserved.

    The order is kept in heaps, so that with 20,000 sources a claim pays only for the few that it serves. An entry whose
    position has closed or was served stays in its heap and is corrected when it reaches the top: until then it is too
    early in the order, never too late.
    """

    full_classes: set[str] = field(default_factory=set)  # have reached their total: no source of theirs has a turn
    _open: dict[Position, str] = field(default_factory=dict)  # open positions -> the heap that holds them
    _ranks: dict[Position, Rank] = field(default_factory=dict)  # valid entries of the heaps; some have closed
    _heaps: dict[str, list[Rank]] = field(default_factory=lambda: {"": []})  # one per class with a total; "": rest
    _served: dict[tuple[int, str], int] = field(default_factory=dict)  # (priority, source) -> number of its last start
    _starts: int = 0

    def __len__(self) -> int:
        return len(self._open)

    def open(self, position: Position, *, has_total: bool) -> None:
        """Mark a position as open. A new source has its turn after the sources that are already waiting."""
        heap_key = class_of(position.source) if has_total else ""
        if self._open.get(position) == heap_key:
            return
        self._open[position] = heap_key
        known = self._ranks.get(position)
        if known is None or known.heap_key != heap_key:
            priority, source = position.priority, position.source
            served = self._served.setdefault((priority, source), self._starts)
            self._ranks[position] = rank = Rank(priority, served, source, position, heap_key)
            heapq.heappush(self._heaps.setdefault(heap_key, []), rank)

    def close(self, position: Position) -> None:
        """Mark a position as closed: its source is closed, or it has no more jobs."""
        self._open.pop(position, None)

    def started(self, jobs: Sequence[Claimed]) -> None:
        """Note that these jobs were claimed: their sources have had their turn."""
        for job in jobs:
            self._starts += 1
            turn = (job.priority, job.source or PLAIN)
            self._served.pop(turn, None)  # so that the dictionary is ordered by last turn, oldest first
            self._served[turn] = self._starts
        for turn in [*self._served][: len(self._served) - REMEMBERED] if len(self._served) > REMEMBERED else ():
            del self._served[turn]

    @property
    def has_next(self) -> bool:
        """Whether some open position may have a turn: its class has not reached its total."""
        return self._next() is not None

    def choose(self, slots: int, share: Callable[[str], int]) -> Choice:
        """Choose positions in the order of their turns until their sources' shares fill the slots."""
        ranks, sources, rest = list[Rank](), dict[str, None](), MAX_PRIORITY
        while (heap := self._next()) is not None:
            rank = heap[0]
            if rank.source not in sources:
                if slots <= 0:
                    rest = rank.priority
                    break
                sources[rank.source] = None
                slots -= share(rank.source)
            ranks.append(heapq.heappop(heap))
        for rank in ranks:
            heapq.heappush(self._heaps[rank.heap_key], rank)  # each keeps its rank until it is served
        return Choice(ranks, self._with_plain(ranks, [*sources]), rest)

    def _with_plain(self, ranks: list[Rank], sources: list[str]) -> list[str]:
        """These sources, with PLAIN inserted where the plain jobs of the best priority have their turn."""
        best = ranks[0].priority
        at = bisect_left(ranks, (best, self._served.get((best, PLAIN), 0), PLAIN))
        before = len({rank.source for rank in ranks[:at]})
        return [*sources[:before], PLAIN, *sources[before:]]

    def _next(self) -> list[Rank] | None:
        """The heap whose top has the next turn; None if no position may have one."""
        if len(self._heaps) == 1:  # no class has a total
            return self._heaps[""] if self._tidy("") else None
        tops = [
            heap
            for heap_key, heap in [*self._heaps.items()]
            if heap_key not in self.full_classes and self._tidy(heap_key)
        ]
        return min(tops, default=None)

    def _tidy(self, heap_key: str) -> bool:
        """Remove or correct outdated entries until the top of a heap is valid; returns whether the heap has a top."""
        heap = self._heaps[heap_key]
        while heap:
            rank = heap[0]
            served = self._served.get((rank.priority, rank.source), rank.served)
            if self._ranks.get(rank.position) is not rank:
                heapq.heappop(heap)  # moved to another heap: its class got or lost its total
            elif rank.position not in self._open:
                del self._ranks[heapq.heappop(heap).position]
            elif rank.served != served:
                later = Rank(rank.priority, served, rank.source, rank.position, heap_key)
                self._ranks[rank.position] = later
                heapq.heapreplace(heap, later)
            else:
                return True
        return False


@dataclass(slots=True)
class KnownSource:
    """A source with ready jobs."""

    gate: Gate
    room: int = 0  # how many jobs it admitted when last seen; a claim counts again
    positions: dict[Position, int] = field(default_factory=dict)  # of ready jobs -> the last survey that found some
    opens_at: float = math.inf  # OPEN: open now; inf: only when one of its attempts ends or an operator opens it


@dataclass(slots=True)
class _Survey:
    """One pass over all sources that have ready jobs, look by look."""

    number: int
    starts: dict[QueueTask, Position]  # where the next look starts; absent: read to the end
    looks: int = 0
    seconds: float = 0.0  # how long its looks took in total
    shown: int = 0  # positions found
    again: bool = False  # woken during the survey: what was already read may have changed


@dataclass(slots=True)
class SeenSources:
    """The sources that one worker knows, and when it looks at them again."""

    served: Sequence[QueueTask]
    poll_seconds: float  # between surveys when only an operator can open a source
    waiting: bool = True  # jobs with a source are waiting; assumed until the first look
    look_at: float = 0.0  # when the next look is due
    _known: dict[str, KnownSource] = field(default_factory=dict)
    _timers: list[tuple[float, str]] = field(default_factory=list)  # heap: when closed sources open
    _freed: dict[str, float] = field(default_factory=dict)  # source or class -> when its last attempt here ended
    # source -> how many claims in a row got none of its jobs, and when it may be tried again
    _busy: dict[str, tuple[int, float]] = field(default_factory=dict)
    _order: TurnOrder = field(default_factory=TurnOrder)
    _survey: _Survey = field(init=False)  # the current one, or the next
    _cut: bool = False  # the last survey stopped at MOST sources; the next one continues from there
    _may_survey_at: float = 0.0  # earliest start of a survey: after a long one, looks must pause
    _looked: float = -math.inf  # when the last look ended

    def __post_init__(self) -> None:
        self._survey = _Survey(1, self._from_the_front())

    def _from_the_front(self) -> dict[QueueTask, Position]:
        return {one: before_all(one) for one in self.served}

    # --- what the plan reports

    def woken(self, now: float) -> None:
        """Jobs may have become ready, or sources may have opened: make a survey soon."""
        if self.surveying:
            self._survey.again = True
        else:
            soonest = max(now, self._may_survey_at)
            self.look_at = min(self.look_at, soonest if self.waiting else max(soonest, self._look_again_at()))

    def polled(self, now: float) -> None:
        """The worker has asked for plain jobs: if no job with a source is known, look for one as well."""
        if not self.waiting:
            self.look_at = min(self.look_at, max(now, self._look_again_at()))

    def _look_again_at(self) -> float:
        """The earliest time of the next look while no job with a source is known."""
        return self._looked + FRESH_SECONDS

    def freed(self, source: str, attempts: int, now: float) -> None:
        """This many attempts of a source have ended and are settled."""
        source_class = class_of(source)
        self._freed[source] = self._freed[source_class] = now
        self._order.full_classes.discard(source_class)
        if (known := self._known.get(source)) is None:
            return
        known.room += attempts
        if known.opens_at == math.inf:
            self._open(known)

    # --- what the plan asks

    def next_at(self, now: float) -> float:
        """When a claim or a look may next find a job for a free slot."""
        return now if self.has_open(now) else min(self.look_at, self._timers[0][0] if self._timers else math.inf)

    def has_open(self, now: float) -> bool:
        """Open the sources whose time has come; returns whether a job of some source could start."""
        while self._timers and self._timers[0][0] <= now:
            at, source = heapq.heappop(self._timers)
            known = self._known.get(source)
            if known is not None and known.opens_at == at:
                self._open(known)
        return self.surveyed and self._order.has_next

    @property
    def surveyed(self) -> bool:
        """Whether the first survey is complete."""
        return self._survey.number > 1

    @property
    def surveying(self) -> bool:
        return self._survey.looks > 0

    @property
    def awaits_first_survey(self) -> bool:
        """Whether to wait for the first survey, before whose end no source is known to be open."""
        return not self.surveyed and self._survey.seconds < FIRST_SECONDS

    @property
    def all_closed(self) -> bool:
        """Whether jobs with a source are waiting and none of them may start."""
        return self.waiting and self.surveyed and not self._order.has_next

    def ranges(self) -> list[SourceRange]:
        """What the next look reads: it continues where the last one stopped."""
        sources = LOOK if self.surveyed and self._order.has_next else WHOLE_LOOK
        starts = self._survey.starts
        most = max(32, sources // max(1, len(starts)))
        return [SourceRange(*position, most) for position in starts.values()]

    def next_turns(self, n: int, now: float) -> tuple[list[Sighting], Choice] | None:
        """The sources that have the next turns, for `n` free slots, and the choice that they come from; None if no
        source is known to be open."""
        if not self.has_open(now):
            return None
        turn = JOBS_A_TURN if n >= MANY_SLOTS and len(self._order) >= n else 1
        choice = self._order.choose(n, lambda source: max(1, min(turn, self._known[source].room)))
        return [Sighting(one.position, self._known[one.source].gate) for one in choice.ranks], choice

    def _open(self, known: KnownSource) -> None:
        """Open a source at all of its positions."""
        known.opens_at, has_total = OPEN, known.gate.total is not None
        for position in known.positions:
            self._order.open(position, has_total=has_total)

    def _close(self, known: KnownSource, until: float) -> None:
        """Close a source at all of its positions until a time."""
        known.opens_at = until
        for position in known.positions:
            self._order.close(position)

    # --- results of looks and claims

    def saw(self, ranges: Sequence[SourceRange], sightings: Sequence[Sighting], began: float, now: float) -> None:
        """Note the result of a look."""
        survey, self._looked = self._survey, now
        survey.looks += 1
        survey.seconds += now - began
        survey.shown += len(sightings)
        for one in ranges:
            survey.starts.pop(QueueTask(one.queue, one.task), None)
        for position, gate, last in sightings:
            source = position.source
            known = self._known.get(source)
            if known is None:
                known = self._known[source] = KnownSource(gate)
            known.positions[position] = survey.number
            self._open_or_close(source, known, gate, began, now)
            if last:
                survey.starts[QueueTask(position.queue, position.task)] = position
        self.waiting = bool(self._known)
        if survey.starts and survey.shown < MOST:
            self.look_at = now + (PAUSE_BESIDE_JOBS * (now - began) if self.has_open(now) else 0.0)
        else:
            self._end_survey(survey, now)

    def _open_or_close(self, source: str, known: KnownSource, gate: Gate, began: float, now: float) -> None:
        """Open or close a source by its gate, which was read after `began`."""
        admission, source_class = admit(gate), class_of(source)
        known.gate, known.room = gate, admission.room
        if admission.why == "class" and self._freed.get(source_class, -math.inf) < began:
            self._order.full_classes.add(source_class)
        elif admission.room > 0:
            self._order.full_classes.discard(source_class)
        opens_at = now
        if admission.room <= 0 and admission.why != "class":
            opens_at = math.inf if admission.wait is None else now + admission.wait
        if opens_at == math.inf and self._freed.get(source, -math.inf) >= began:
            opens_at = now
        opens_at = max(opens_at, self._busy[source][1] if source in self._busy else now)
        if opens_at <= now:
            self._open(known)
        else:
            if known.opens_at != opens_at < math.inf:
                heapq.heappush(self._timers, (opens_at, source))
            self._close(known, opens_at)

    def _end_survey(self, survey: _Survey, now: float) -> None:
        """Forget the positions that this survey did not find, which have no ready jobs, and plan the next survey."""
        for known in [*self._known.values()]:
            for position in [one for one, number in known.positions.items() if number < survey.number]:
                self._drop(known, position)
        self._timers = [(one.opens_at, s) for s, one in self._known.items() if OPEN < one.opens_at < math.inf]
        heapq.heapify(self._timers)
        self._busy = {source: busy for source, busy in self._busy.items() if busy[1] > now - LONGEST_BUSY}
        self._freed = {name: at for name, at in self._freed.items() if at > now - survey.seconds - CLOSED_SECONDS}
        self.waiting, self._cut = bool(self._known), bool(survey.starts)
        self._may_survey_at = now if survey.looks == 1 else now + PAUSE * survey.seconds
        self._survey = _Survey(survey.number + 1, survey.starts or self._from_the_front())
        self.look_at = self._next_survey(survey, now)

    def _next_survey(self, last: _Survey, now: float) -> float:
        """When the survey after `last` begins."""
        if self.has_open(now):  # jobs that can start come before further looks
            return now + max(CLOSED_SECONDS if self._cut else FRESH_SECONDS, PAUSE_BESIDE_JOBS * last.seconds)
        if last.again or self._cut:
            return self._may_survey_at
        if not self.waiting:
            return math.inf
        slots_elsewhere = self._order.full_classes or any(one.opens_at == math.inf for one in self._known.values())
        pause = max(CLOSED_SECONDS, last.looks / LOOKS_A_SECOND, PAUSE * last.seconds)
        return now + (pause if slots_elsewhere else max(pause, self.poll_seconds))

    def claimed(self, sightings: Sequence[Sighting], result: ClaimResult, began: float, now: float) -> None:
        """Note the result of a claim that was sent at `began`."""
        self._order.started(result.jobs)
        served, may_have_more = {job.source for job in result.jobs}, {one.source for one in result.left}
        asked = {one.position for one in sightings}
        for source in dict.fromkeys(one.source for one in sightings):
            if (known := self._known.get(source)) is None:
                continue
            if source in served:
                self._busy.pop(source, None)
            elif source not in result.locked and source not in may_have_more and known.positions.keys() - asked:
                pass  # only the positions that were asked are empty: jobs at the others must not wait
            elif source in result.locked or source not in may_have_more or not result.jobs:
                misses = self._busy.get(source, (0, 0.0))[0] + 1
                self._busy[source] = (misses, now + min(BUSY_SECONDS * 2**misses, LONGEST_BUSY))
                self.look_at = min(self.look_at, self._busy[source][1])
            self._open_or_close(source, known, result.gates.get(source, known.gate), began, now)
        for position, _, _ in sightings:
            known = self._known.get(position.source)
            if known is not None and position.source not in result.locked and position not in result.left:
                self._drop(known, position)
        if self._cut and not self.has_open(now):
            self.look_at = min(self.look_at, self._may_survey_at)

    def _drop(self, known: KnownSource, position: Position) -> None:
        """Forget a position that has no more ready jobs."""
        known.positions.pop(position, None)
        self._order.close(position)
        if not known.positions:
            del self._known[position.source]
