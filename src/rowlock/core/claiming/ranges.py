"""Which ranges of the claim index a worker asks for: from where, and how deep into each.

Under a held snapshot the index keeps an entry for every job that was already claimed, and a claim that starts at the
front walks over all of them. Job ids are UUIDv7 and carry their time, so each queue and priority has a low-water mark:
after a full claim the last id that it brought, after a short one an id a few seconds older than the newest job. Ids
below the mark do come: retries, transactions that commit late, a producer whose clock is behind. For them one claim
starts from the front, at least once a second and more often where that is cheap.

With many tasks, each lane is asked only for as many jobs as it has lately given: doubled when it gave all of that,
halved when it gave far less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY, Claimed

NO_ID = "00000000-0000-0000-0000-000000000000"
FRONT_SECONDS = 1.0  # longest time between two claims from the front
FRONT_SHARE = 0.05  # claims from the front may take this share of the time; cheap ones are made more often than needed
BACK_MS = 2000  # how far behind the newest job a claim starts once everything was claimed
MARKS = 8  # priorities of one queue that have a mark; each is one more range to ask for
FEW_LANES = 4  # with no more lanes than this, each is asked for all the jobs that are wanted
START = 16  # jobs that a lane is asked for at first, if there are more lanes


class Lane(NamedTuple):
    """A range of the claim index: one task in one queue, from (low_priority, low_id) exclusive up to high_priority.
    A claim reads the first `most` jobs of it; if it finds that many, there may be more."""

    queue: str
    task: str
    low_priority: int = MIN_PRIORITY - 1
    low_id: str = NO_ID
    high_priority: int = MAX_PRIORITY + 1
    most: int = 1_000_000


class Lanes:
    """The lanes of one worker: every (queue, task) that it serves, cut at the low-water marks."""

    def __init__(self, queues: Sequence[str], tasks: Iterable[str]) -> None:
        self.names = [(queue, task) for queue in queues for task in sorted(tasks)]
        self._most = dict.fromkeys(self.names, START) if len(self.names) > FEW_LANES else {}
        self._marks: dict[str, dict[int, str]] = {}
        self._newest = 0  # the time of the newest job claimed, in ms
        self.front_at = 0.0  # the first claim after this time starts from the front
        self.front_due = 0.0  # at this time there must be such a claim, even if nothing else asks for one

    def forget(self) -> None:
        """Jobs with old ids may have become claimable: start the next claim from the front."""
        self.front_at = 0.0

    def ranges(self, n: int, front: bool) -> list[Lane]:
        """What to claim `n` jobs from."""
        most = self._most
        if front or not self._marks:
            return [Lane(*name, most=most.get(name, n)) for name in self.names]
        return [cut for name in self.names for cut in self._cut(*name, most.get(name, n))]

    def _cut(self, queue: str, task: str, most: int) -> Iterable[Lane]:
        """One lane as ranges: before the first mark, from each mark to the next, from the last on."""
        low_priority, low_id = MIN_PRIORITY - 1, NO_ID
        for priority, job_id in sorted(self._marks.get(queue, {}).items()):
            if priority > MIN_PRIORITY:
                yield Lane(queue, task, low_priority, low_id, priority, most)
            low_priority, low_id = priority, job_id
        yield Lane(queue, task, low_priority, low_id, MAX_PRIORITY + 1, most)

    def learn(
        self, claimed: Sequence[Claimed], asked: int, *, front: bool, seconds: float, now: float, wall: float
    ) -> bool:
        """Set the marks, and how many jobs to ask each lane for, by the result of a claim that took `seconds`. Returns
        whether there may be more jobs."""
        if front:
            self.front_due = now + FRONT_SECONDS
            self.front_at = min(self.front_due, now + seconds / FRONT_SHARE)
        more = len(claimed) >= asked
        if self._most:
            more = self._learn_most(claimed, asked) or more
        # In claim order the last of each (queue, priority) has the largest id.
        last = {(job.queue, job.priority): job.id for job in claimed}
        for (queue, priority), job_id in last.items():
            self._mark(queue, priority, job_id)
        if not more:
            self._mark_all_claimed(last.values(), wall)
        return more

    def _mark(self, queue: str, priority: int, job_id: str) -> None:
        marks = self._marks.setdefault(queue, {})
        marks.pop(priority, None)
        marks[priority] = job_id
        if len(marks) > MARKS:
            del marks[next(iter(marks))]

    def _mark_all_claimed(self, ids: Iterable[str], wall: float) -> None:
        """All ready jobs were claimed. The next claims start a little behind the newest job, because transactions with
        older ids may commit late. An id from a clock that is ahead counts as made now: it must not hide other jobs."""
        self._newest = min(max([self._newest, *map(_time_of, ids)]), round(wall * 1000))
        floor = _id_at(self._newest - BACK_MS)
        for marks in self._marks.values():
            for priority in marks:
                marks[priority] = floor

    def _learn_most(self, claimed: Sequence[Claimed], asked: int) -> bool:
        """Adapt how many jobs each lane is asked for; returns whether some lane gave all that it was asked for."""
        gave = Counter([(job.queue, job.task) for job in claimed])
        more = False
        for lane, most in self._most.items():
            if gave[lane] >= min(most, asked):
                more = True
                self._most[lane] = most * 2 if most < asked else most
            elif gave[lane] < most // 4:
                self._most[lane] = max(START, most // 2)
        return more


def _time_of(job_id: str) -> int:
    """The time in a UUIDv7, in ms; of another id any number. SQLite also stores an id that is none."""
    try:
        return int(job_id[:8] + job_id[9:13], 16)
    except ValueError:
        return 0


def _id_at(ms: int) -> str:
    """The smallest id of that time."""
    digits = f"{max(ms, 0):012x}"
    return f"{digits[:8]}-{digits[8:]}{NO_ID[13:]}"
