"""In which order a worker serves the sources that are open: priority first, then the one served longest ago.

The order is kept in heaps, so that with 20,000 sources a claim pays only for the few that it is for. The rank of a head
that has closed, or was served since, is corrected only when it comes to the top of its heap: until then it stands too
early in the order, never too late.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowlock.core.claiming.candidates import HeadName
from rowlock.core.job import MAX_PRIORITY, Claimed
from rowlock.core.sources.admission import class_of

PLAIN = ""  # stands for the jobs without a source, which have one turn together
REMEMBERED = 40_000  # sources and priorities whose last turn is remembered


class Rank(NamedTuple):
    """Where one head stands in the order: the smaller of two ranks has its turn first."""

    priority: int
    served: int  # number of the start in which this source was last served at this priority
    source: str
    head: HeadName
    heap_key: str  # of the heap that it is in: its class if that has a total, else ""


class Choice(NamedTuple):
    """The heads that the next claim is for: their sources have the next turns."""

    ranks: list[Rank]
    order: list[str]  # their sources in turn, with PLAIN where the jobs without a source have theirs
    rest: int  # best priority of the other sources; jobs without a source of a worse priority are not yet next


@dataclass(slots=True)
class TurnOrder:
    """The open heads of one worker's sources, in the order of their turns."""

    full_classes: set[str] = field(default_factory=set)  # as many jobs run as their total allows: no source has a turn
    _open: dict[HeadName, str] = field(default_factory=dict)  # open heads -> the heap that they belong to
    _ranks: dict[HeadName, Rank] = field(default_factory=dict)  # what the heaps hold; some heads have closed since
    _heaps: dict[str, list[Rank]] = field(default_factory=lambda: {"": []})  # per class with a total; "": others
    _served: dict[tuple[int, str], int] = field(default_factory=dict)  # (priority, source) -> number of its last start
    _starts: int = 0

    def __len__(self) -> int:
        """How many heads are open."""
        return len(self._open)

    def open(self, head: HeadName, *, has_total: bool) -> None:
        """This head may be claimed from. A new source has its turn after the sources that wait already."""
        heap_key = class_of(head[3]) if has_total else ""
        if self._open.get(head) == heap_key:
            return
        self._open[head] = heap_key
        known = self._ranks.get(head)
        if known is None or known.heap_key != heap_key:
            served = self._served.setdefault((head[2], head[3]), self._starts)
            self._ranks[head] = rank = Rank(head[2], served, head[3], head, heap_key)
            heapq.heappush(self._heaps.setdefault(heap_key, []), rank)

    def close(self, head: HeadName) -> None:
        """This head may not be claimed from, or has no more jobs."""
        self._open.pop(head, None)

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
        """Whether some head is open."""
        return self._next() is not None

    def choose(self, slots: int, share: Callable[[str], int]) -> Choice:
        """The heads whose turn it is, until their sources' shares fill the slots."""
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
        """These sources, with PLAIN inserted where the jobs without a source of the best priority have their turn."""
        best = ranks[0].priority
        at = bisect_left(ranks, (best, self._served.get((best, PLAIN), 0), PLAIN))
        before = len({rank.source for rank in ranks[:at]})
        return [*sources[:before], PLAIN, *sources[before:]]

    def _next(self) -> list[Rank] | None:
        """The heap that has the next turn at its top; None if no head is open."""
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
            if self._ranks.get(rank.head) is not rank:
                heapq.heappop(heap)  # the head is in another heap: its class was given a total, or has none any more
            elif rank.head not in self._open:
                del self._ranks[heapq.heappop(heap).head]
            elif rank.served != served:
                self._ranks[rank.head] = later = Rank(rank.priority, served, rank.source, rank.head, heap_key)
                heapq.heapreplace(heap, later)
            else:
                return True
        return False
