"""Which ranges of the claim index to ask for: how deep into each, and from where.

Two things keep a claim's cost near to what it brings. Under a held snapshot the index keeps the entries of every job
already taken, and a claim that starts at the front walks over all of them: so each queue and priority has a low-water
mark where the last claim started; once a second, and whenever a claim comes back short, the marks are forgotten, so
that retries and late commits are found. And with many tasks, each lane is asked only for as many as it has lately
given: doubled when it gave all of that, halved when it gave far less.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY, Claimed
from rowlock.store.jobs import NO_ID, Lane

RESET_SECONDS = 1.0
FEW_LANES = 4  # so few may each be asked for all that is wanted
START = 16


class LaneBook:
    """The lanes of one worker: every (queue, task) it serves, cut at its marks."""

    def __init__(self, queues: Sequence[str], tasks: Iterable[str]) -> None:
        self._names = [(queue, task) for queue in queues for task in sorted(tasks)]
        self._takes = dict.fromkeys(self._names, START) if len(self._names) > FEW_LANES else {}
        self._marks: dict[str, dict[int, str]] = {}
        self._reset_at = 0.0

    def lanes(self, n: int) -> list[Lane]:
        """What to claim `n` jobs from now."""
        if self._marks and time.monotonic() >= self._reset_at:
            self._marks.clear()
        return [cut for queue, task in self._names for cut in self._cut(queue, task, self._takes.get((queue, task), n))]

    def _cut(self, queue: str, task: str, take: int) -> Iterable[Lane]:
        """One lane as segments: before the first mark, from each mark to the next, from the last on."""
        low_priority, low_id = MIN_PRIORITY - 1, NO_ID
        for priority, job_id in sorted(self._marks.get(queue, {}).items()):
            if priority > MIN_PRIORITY:
                yield Lane(queue, task, low_priority, low_id, priority, take)
            low_priority, low_id = priority, job_id
        yield Lane(queue, task, low_priority, low_id, MAX_PRIORITY + 1, take)

    def learn(self, claimed: Sequence[Claimed], asked: int) -> bool:
        """Set marks and takes by what a claim brought; answers whether there may be more."""
        more = len(claimed) >= asked
        if self._takes:
            more = self._learn_takes(claimed, asked) or more
        if not more:
            self._marks.clear()
            return False
        if not self._marks:
            self._reset_at = time.monotonic() + RESET_SECONDS
        # In claim order the first of each (queue, priority) has the smallest id.
        lowest: dict[tuple[str, int], str] = {}
        for job in claimed:
            lowest.setdefault((job.queue, job.priority), job.id)
        for (queue, priority), job_id in lowest.items():
            self._marks.setdefault(queue, {})[priority] = job_id
        return True

    def _learn_takes(self, claimed: Sequence[Claimed], asked: int) -> bool:
        """Answers whether some lane gave all that it was asked for."""
        gave = Counter([(job.queue, job.task) for job in claimed])
        more = False
        for lane, take in self._takes.items():
            if gave[lane] >= min(take, asked):
                more = True
                self._takes[lane] = take * 2 if take < asked else take
            elif gave[lane] < take // 4:
                self._takes[lane] = max(START, take // 2)
        return more
