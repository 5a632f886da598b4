"""The order in which a worker serves open sources: by priority, then the one served longest ago.

The order is kept in heaps, so that with 20,000 sources a claim pays only for the few that it is for. The rank of
a position that has closed, or was served since, is corrected only when it comes to the top of its heap: until then it
is too early in the order, never too late.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.core.claiming.ranges import PLAIN, Position
from rowlock.core.job import MAX_PRIORITY, Claimed
from rowlock.core.sources.admission import class_of

REMEMBERED = 40_000  # sources and priorities whose last turn is remembered


class Rank(NamedTuple):
    """When a position has its turn: the smaller of two ranks comes first."""

    priority: int
    served: int  # number of the start in which this source was last served at this priority
    source: str
    position: Position
    heap_key: str  # of the heap that it is in: its class if that has a total, else ""


class Choice(NamedTuple):
    """The positions that the next claim is for: their sources have the next turns."""

    ranks: list[Rank]
    order: list[str]  # their sources in turn, with PLAIN where the plain jobs have theirs
    rest: int  # best priority of the other sources, and the lowest that plain jobs may have in this claim


@dataclass(slots=True)
class TurnOrder:
    """The open positions of one worker's sources, in the order of their turns."""

    full_classes: set[str] = field(default_factory=set)  # as many jobs run as their total allows: no source has a turn
    _open: dict[Position, str] = field(default_factory=dict)  # open positions -> the heap that they belong to
    _ranks: dict[Position, Rank] = field(default_factory=dict)  # what the heaps hold; some have closed since
    _heaps: dict[str, list[Rank]] = field(default_factory=lambda: {"": []})  # per class with a total; "": others
    _served: dict[tuple[int, str], int] = field(default_factory=dict)  # (priority, source) -> number of its last start
    _starts: int = 0

    def __len__(self) -> int:
        """How many positions are open."""
        return len(self._open)

    def open(self, position: Position, *, has_total: bool) -> None:
        """Jobs may be claimed here. A new source has its turn after the sources that wait already."""
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
        """No job may be claimed here, or there are no more."""
        self._open.pop(position, None)

    def started(self, jobs: Sequence[Claimed]) -> None:
        """These jobs were claimed: their sources have had their turn."""
        for job in jobs:
            self._starts += 1
            turn = (job.priority, job.source or PLAIN)
            self._served.pop(turn, None)  # so that the dictionary is ordered by last turn, oldest first
            self._served[turn] = self._starts
        for turn in [*self._served][: len(self._served) - REMEMBERED] if len(self._served) > REMEMBERED else ():
            del self._served[turn]

    @property
    def has_next(self) -> bool:
        """Whether some position is open."""
        return self._next() is not None

    def choose(self, slots: int, share: Callable[[str], int]) -> Choice:
        """The positions whose turn it is, until their sources' shares fill the slots."""
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
            heapq.heappush(self._heaps[rank.heap_key], rank)  # it keeps its rank until it is served
        return Choice(ranks, self._with_plain(ranks, [*sources]), rest)

    def _with_plain(self, ranks: list[Rank], sources: list[str]) -> list[str]:
        """These sources, with PLAIN inserted where the plain jobs of the best priority have their turn."""
        best = ranks[0].priority
        at = bisect_left(ranks, (best, self._served.get((best, PLAIN), 0), PLAIN))
        before = len({rank.source for rank in ranks[:at]})
        return [*sources[:before], PLAIN, *sources[before:]]

    def _next(self) -> list[Rank] | None:
        """The heap that has the next turn at its top; None if none is open."""
        if len(self._heaps) == 1:  # no class has a total
            return self._heaps[""] if self._tidy("") else None
        tops = [
            heap
            for heap_key, heap in [*self._heaps.items()]
            if heap_key not in self.full_classes and self._tidy(heap_key)
        ]
        return min(tops, default=None)

    def _tidy(self, heap_key: str) -> bool:
        """Correct a heap until its top is right; returns whether anything is left."""
        heap = self._heaps[heap_key]
        while heap:
            rank = heap[0]
            served = self._served.get((rank.priority, rank.source), rank.served)
            if self._ranks.get(rank.position) is not rank:
                heapq.heappop(heap)  # it is in another heap: its class was given a total, or has none any more
            elif rank.position not in self._open:
                del self._ranks[heapq.heappop(heap).position]
            elif rank.served != served:
                later = Rank(rank.priority, served, rank.source, rank.position, heap_key)
                self._ranks[rank.position] = later
                heapq.heapreplace(heap, later)
            else:
                return True
        return False
