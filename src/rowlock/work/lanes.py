"""Which ranges of the claim index to ask for, with a low-water mark for each queue and priority.

Under a held snapshot the index keeps the entries of every job already taken, and a claim that starts at the front walks
over all of them. Starting where the last claim started keeps the walk short; once a second, and whenever a claim comes
back short, the marks are forgotten, so that retries and late commits are found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY, Claimed
from rowlock.store.jobs import NO_ID, Lane

RESET_SECONDS = 1.0


class LaneBook:
    """The lanes of one worker: every (queue, task) it serves, cut at its marks."""

    def __init__(self, queues: Sequence[str], tasks: Iterable[str]) -> None:
        self._plain = [Lane(queue, task) for queue in queues for task in sorted(tasks)]
        self._marks: dict[str, dict[int, str]] = {}
        self._reset_at = 0.0

    def lanes(self) -> list[Lane]:
        """What to claim from now."""
        if self._marks and time.monotonic() >= self._reset_at:
            self._marks.clear()
        if not self._marks:
            return self._plain
        return [cut for lane in self._plain for cut in self._cut(lane)]

    def _cut(self, lane: Lane) -> Iterable[Lane]:
        """One lane as segments: before the first mark, from each mark to the next, from the last on."""
        low_priority, low_id = MIN_PRIORITY - 1, NO_ID
        for priority, job_id in sorted(self._marks.get(lane.queue, {}).items()):
            if priority > MIN_PRIORITY:
                yield Lane(lane.queue, lane.task, low_priority, low_id, priority)
            low_priority, low_id = priority, job_id
        yield Lane(lane.queue, lane.task, low_priority, low_id, MAX_PRIORITY + 1)

    def learn(self, claimed: Sequence[Claimed], asked: int) -> None:
        """Set the marks by what a claim brought."""
        if len(claimed) < asked:
            self._marks.clear()
            return
        if not self._marks:
            self._reset_at = time.monotonic() + RESET_SECONDS
        # In claim order the first of each (queue, priority) has the smallest id.
        lowest: dict[tuple[str, int], str] = {}
        for job in claimed:
            lowest.setdefault((job.queue, job.priority), job.id)
        for (queue, priority), job_id in lowest.items():
            self._marks.setdefault(queue, {})[priority] = job_id
