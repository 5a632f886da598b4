"""In which order a worker serves the sources that are open: priority first, then the one served longest ago.

Heaps keep 20,000 sources in order at the cost of the few that a claim is for. A turn whose head has closed, or was
served since, is put right only when it comes to the top of its heap: until then its place is too good, never too bad.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.core.job import MAX_PRIORITY, Claimed
from rowlock.core.source import class_of

PLAIN = ""  # stands for the jobs without a source, which have one turn together
REMEMBERED = 40_000  # sources and priorities whose last turn is remembered

HeadName = tuple[str, str, int, str]  # queue, task, priority and source


class Turn(NamedTuple):
    """A head in its turn; comparing two of them tells which comes first."""

    priority: int
    served: int  # number of the start in which this source was last served at this priority
    source: str
    head: HeadName
    group: str  # the heap that it is in


class Choice(NamedTuple):
    """Whom the next claim is for."""

    turns: list[Turn]
    sources: list[str]  # of these turns, in order, and PLAIN where its turn is
    rest: int  # best priority of the sources that were not chosen


@dataclass(slots=True)
class TurnOrder:
    """The open heads of one worker's sources, in the order of their turns."""

    full_classes: set[str] = field(default_factory=set)  # their sources have no turn
    _open: dict[HeadName, str] = field(default_factory=dict)  # open heads -> the heap that they belong to
    _turns: dict[HeadName, Turn] = field(default_factory=dict)  # what the heaps hold; some heads have closed since
    _heaps: dict[str, list[Turn]] = field(default_factory=lambda: {"": []})  # per class with a total; "": others
    _served: dict[tuple[int, str], int] = field(default_factory=dict)  # (priority, source) -> number of its last start
    _starts: int = 0

    def __len__(self) -> int:
        """How many heads are open."""
        return len(self._open)

    def open(self, head: HeadName, *, has_total: bool) -> None:
        """This head may be claimed from. A source that is new has its turn after those that wait already."""
        group = class_of(head[3]) if has_total else ""
        if self._open.get(head) == group:
            return
        self._open[head] = group
        known = self._turns.get(head)
        if known is None or known.group != group:
            served = self._served.setdefault((head[2], head[3]), self._starts)
            self._turns[head] = turn = Turn(head[2], served, head[3], head, group)
            heapq.heappush(self._heaps.setdefault(group, []), turn)

    def close(self, head: HeadName) -> None:
        """This head may not be claimed from, or has no more jobs."""
        self._open.pop(head, None)

    def started(self, jobs: Sequence[Claimed]) -> None:
        """These were claimed: their sources have had their turn."""
        for job in jobs:
            self._starts += 1
            place = (job.priority, job.source or PLAIN)
            self._served.pop(place, None)  # so that the dictionary is in the order of the turns
            self._served[place] = self._starts
        for place in [*self._served][: len(self._served) - REMEMBERED] if len(self._served) > REMEMBERED else ():
            del self._served[place]

    @property
    def has_next(self) -> bool:
        """Whether some head is open."""
        return self._next() is not None

    def choose(self, slots: int, share: Callable[[str], int]) -> Choice:
        """The heads whose turn it is, until their sources' shares fill the slots."""
        turns, sources, rest = list[Turn](), dict[str, None](), MAX_PRIORITY
        while (heap := self._next()) is not None:
            turn = heap[0]
            if turn.source not in sources:
                if slots <= 0:
                    rest = turn.priority
                    break
                sources[turn.source] = None
                slots -= share(turn.source)
            turns.append(heapq.heappop(heap))
        for turn in turns:
            heapq.heappush(self._heaps[turn.group], turn)  # it keeps its place until it is served
        return Choice(turns, self._with_plain(turns, [*sources]), rest)

    def _with_plain(self, turns: list[Turn], sources: list[str]) -> list[str]:
        """These sources, and the jobs without a source where their turn among the best priority is."""
        best = turns[0].priority
        at = bisect_left(turns, (best, self._served.get((best, PLAIN), 0), PLAIN))
        before = len({turn.source for turn in turns[:at]})
        return [*sources[:before], PLAIN, *sources[before:]]

    def _next(self) -> list[Turn] | None:
        """The heap that has the next turn at its top; None if no head is open."""
        tops = [heap for group, heap in [*self._heaps.items()] if group not in self.full_classes and self._tidy(group)]
        return min(tops, default=None)

    def _tidy(self, group: str) -> bool:
        """Put a heap right until its top is; answers whether anything is left."""
        heap = self._heaps[group]
        while heap:
            turn = heap[0]
            served = self._served.get((turn.priority, turn.source), turn.served)
            if self._turns.get(turn.head) is not turn:
                heapq.heappop(heap)  # the head is in another heap: its class was given a total, or has none any more
            elif turn.head not in self._open:
                del self._turns[heapq.heappop(heap).head]
            elif turn.served != served:
                self._turns[turn.head] = later = Turn(turn.priority, served, turn.source, turn.head, group)
                heapq.heapreplace(heap, later)
            else:
                return True
        return False
