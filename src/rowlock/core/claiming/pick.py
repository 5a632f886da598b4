"""Which of the ready jobs a claim takes: best priority first, then one job of each source in turn, oldest first.

Jobs without a source have one turn together, like one source. A claim reads the ready jobs of the sources whose turn it
is (turn_order.py), and asks `deal` which of them to claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import NamedTuple

from rowlock.core.job import Claimed
from rowlock.core.sources.admission import UNLIMITED, class_of

_priority = attrgetter("priority")


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
    asked: Mapping[tuple[str, str, int, str], int],
) -> list[Found]:
    """Choose up to `n` of the found jobs, in order. `order` lists the sources in this round's order ("" stands for jobs
    without one); `room` and `class_room` say how many jobs of each source and class may start; `asked` says how many
    jobs were asked for in each (queue, task, priority, source). Where all of these were found there may be more, and no
    job of a worse priority may be chosen."""
    levels: dict[int, dict[str, list[Found]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[tuple[str, str, int, str], int] = defaultdict(int)
    for job in found:
        levels[job.priority][job.source or ""].append(job)
        counts[job.queue, job.task, job.priority, job.source or ""] += 1
    left, class_left, picks = dict(room), dict(class_room), list[Found]()
    for priority in sorted(levels):
        waiting = {source: sorted(jobs, key=_age, reverse=True) for source, jobs in levels[priority].items()}
        turns = [source for source in order if source in waiting]
        while turns and len(picks) < n:
            turns = [source for source in turns if _one(source, waiting[source], left, class_left, picks, n)]
        cut = [lane[3] for lane, count in counts.items() if lane[2] == priority and count >= asked.get(lane, UNLIMITED)]
        if len(picks) >= n or any(_open(source, left, class_left) for source in cut):
            break
    return picks


def in_turn(jobs: Sequence[Claimed], order: Sequence[str]) -> list[Claimed]:
    """Jobs of one claim in the order in which they start, which is the order of `deal`. `jobs` are in the order of
    priority and age, `order` is as in `deal`."""
    dealt = list[Claimed]()
    for _, alike in groupby(jobs, key=_priority):
        waiting: dict[str, list[Claimed]] = {}
        for job in alike:
            waiting.setdefault(job.source or "", []).append(job)
        turns = [waiting.pop(source) for source in order if source in waiting]
        turns += waiting.values()  # they are claimed, so that each of them must start
        dealt += [job for one_each in zip_longest(*turns) for job in one_each if job is not None]
    return dealt


def _age(job: Found) -> str:
    return job.id


def _open(source: str, left: Mapping[str, int], class_left: Mapping[str, int]) -> bool:
    return left.get(source, UNLIMITED) > 0 and class_left.get(class_of(source), UNLIMITED) > 0


def _one(
    source: str, waiting: list[Found], left: dict[str, int], class_left: dict[str, int], picks: list[Found], n: int
) -> bool:
    """Choose the oldest job of a source if the source may start one more; returns whether it may get another turn."""
    if not waiting or len(picks) >= n or not _open(source, left, class_left):
        return False
    picks.append(waiting.pop())
    left[source] = left.get(source, UNLIMITED) - 1
    if (source_class := class_of(source)) in class_left:
        class_left[source_class] -= 1
    return bool(waiting)
