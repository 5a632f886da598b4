"""Which of the ready jobs a claim takes: best priority first, then one job of each source in turn, oldest first.

Plain jobs share one turn, as if they had one source. A claim reads the ready jobs of the sources that have the next
turns (survey.py), and `deal` chooses which of them to claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import NamedTuple

from rowlock.core.claiming.ranges import PLAIN, Position, position_of
from rowlock.core.job import Claimed
from rowlock.core.sources.admission import UNLIMITED, class_of

_priority, _age = attrgetter("priority"), attrgetter("id")


class Found(NamedTuple):
    """A claimable job."""

    id: str
    priority: int
    source: str | None
    queue: str
    task: str


def deal(
    found: Iterable[Found],
    n: int,
    *,
    order: Sequence[str],
    room: Mapping[str, int],
    class_room: Mapping[str, int],
    asked: Mapping[Position, int],
) -> list[Found]:
    """Choose up to `n` of the found jobs, in the order in which they start. `order` has the sources in the order of
    their turns, with PLAIN for plain jobs; `room` and `class_room` are how many jobs of each source and class may
    start; `asked` is how many jobs the claim read at each position at most. A position that returned that many may have
    more, so if its source may start another, no job of a worse priority is chosen."""
    levels: dict[int, dict[str, list[Found]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[Position, int] = defaultdict(int)
    for job in found:
        levels[job.priority][job.source or PLAIN].append(job)
        counts[position_of(job)] += 1
    left, class_left, picks = dict(room), dict(class_room), list[Found]()
    for priority in sorted(levels):
        waiting = {source: sorted(jobs, key=_age, reverse=True) for source, jobs in levels[priority].items()}
        turns = [source for source in order if source in waiting]
        while turns and len(picks) < n:
            turns = [source for source in turns if _pick_oldest(source, waiting[source], left, class_left, picks, n)]
        cut = [
            position.source
            for position, count in counts.items()
            if position.priority == priority and count >= asked.get(position, UNLIMITED)
        ]
        if len(picks) >= n or any(_may_start(source, left, class_left) for source in cut):
            break
    return picks


def in_turn(jobs: Sequence[Claimed], order: Sequence[str]) -> list[Claimed]:
    """The jobs of one claim, sorted by priority and age, in the order in which they start, which is that of `deal`.
    `order` is as in `deal`."""
    dealt = list[Claimed]()
    for _, alike in groupby(jobs, key=_priority):
        waiting: dict[str, list[Claimed]] = {}
        for job in alike:
            waiting.setdefault(job.source or PLAIN, []).append(job)
        turns = [waiting.pop(source) for source in order if source in waiting]
        turns += waiting.values()  # these are claimed as well, so they must start
        dealt += [job for one_each in zip_longest(*turns) for job in one_each if job is not None]
    return dealt


def _may_start(source: str, left: Mapping[str, int], class_left: Mapping[str, int]) -> bool:
    return left.get(source, UNLIMITED) > 0 and class_left.get(class_of(source), UNLIMITED) > 0


def _pick_oldest(
    source: str, waiting: list[Found], left: dict[str, int], class_left: dict[str, int], picks: list[Found], n: int
) -> bool:
    """Choose the oldest job of a source if the source may start one more; returns whether it may have another turn."""
    if not waiting or len(picks) >= n or not _may_start(source, left, class_left):
        return False
    picks.append(waiting.pop())
    left[source] = left.get(source, UNLIMITED) - 1
    if (source_class := class_of(source)) in class_left:
        class_left[source_class] -= 1
    return bool(waiting)
