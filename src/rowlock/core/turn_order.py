"""In which order a worker serves the sources that are open: priority first, then the one served longest ago.

Heaps keep 20,000 sources in order at the cost of the few that a claim is for. An entry whose head has closed, or was
served since, is found out only when it comes to the top of its heap.
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
    queue: str
    task: str

    @property
    def name(self) -> HeadName:
        return self.queue, self.task, self.priority, self.source


class Choice(NamedTuple):
    """Whom the next claim is for."""

    turns: list[Turn]
    sources: list[str]  # of these turns, in order, and PLAIN where its turn is
    rest: int  # best priority of the sources that were not chosen


@dataclass(slots=True)
class TurnOrder:
    """The open heads of one worker's sources, in the order of their turns."""

    full_classes: set[str] = field(default_factory=set)  # their sources have no turn
    _open: dict[HeadName, str] = field(default_factory=dict)  # head -> its heap
    _heaps: dict[str, list[Turn]] = field(default_factory=lambda: {"": []})  # per class with a total; "": others
    _entered: dict[HeadName, int] = field(default_factory=dict)  # head -> `served` of its entry in a heap
    _served: dict[tuple[int, str], int] = field(default_factory=dict)  # (priority, source) -> number of its last start
    _starts: int = 0

    def __len__(self) -> int:
        """How many heads are open."""
        return len(self._open)

    def open(self, name: HeadName, *, has_total: bool) -> None:
        """This head may be claimed from. A source that is new has its turn after those that wait already."""
        self._served.setdefault((name[2], name[3]), self._starts)
        self._open[name] = class_of(name[3]) if has_total else ""
        self._enter(name)

    def close(self, name: HeadName) -> None:
        """This head may not be claimed from, or has no more jobs."""
        self._open.pop(name, None)

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
            turns.append(turn)
            self._leave(heap)
        for turn in turns:
            self._enter(turn.name)  # it keeps its place until it is served
        return Choice(turns, self._with_plain(turns, [*sources]), rest)

    def _with_plain(self, turns: list[Turn], sources: list[str]) -> list[str]:
        """These sources, and the jobs without a source where their turn among the best priority is."""
        best = turns[0].priority
        at = bisect_left(turns, (best, self._served.get((best, PLAIN), 0), PLAIN))
        before = len({turn.source for turn in turns[:at]})
        return [*sources[:before], PLAIN, *sources[before:]]

    def _enter(self, name: HeadName) -> None:
        """Put a head into its heap, unless it is there with this number."""
        queue, task, priority, source = name
        served = self._served.get((priority, source), 0)
        if self._entered.get(name) != served:
            self._entered[name] = served
            heapq.heappush(self._heaps.setdefault(self._open[name], []), Turn(priority, served, source, queue, task))

    def _leave(self, heap: list[Turn]) -> None:
        turn = heapq.heappop(heap)
        if self._entered.get(turn.name) == turn.served:
            del self._entered[turn.name]

    def _next(self) -> list[Turn] | None:
        """The heap that has the next turn at its top; None if no head is open."""
        tops = [heap for group, heap in [*self._heaps.items()] if group not in self.full_classes and self._tidy(group)]
        return min(tops, default=None)

    def _tidy(self, group: str) -> bool:
        """Take out what is no longer true until the top of a heap is; answers whether anything is left."""
        heap = self._heaps[group]
        while heap:
            turn = heap[0]
            name = turn.name
            served = self._served.get((turn.priority, turn.source), 0)
            if self._open.get(name) == group and self._entered.get(name) == turn.served == served:
                return True
            self._leave(heap)
            if name in self._open:
                self._enter(name)  # it was served since, or its class was given a total
        return False
