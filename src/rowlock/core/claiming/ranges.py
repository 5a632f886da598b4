"""Positions in the claim index, the ranges of it that a worker asks for, and how deep it reads into each.

The claim index orders ready jobs by queue, task and priority; within a priority, plain jobs by id, and jobs with a
source by source and id. A `Position` is where the jobs of one source begin; a claim of plain jobs reads a `Range`, and
a look reads a `SourceRange`.

While an old snapshot is held, the index keeps an entry for every claimed job, and a claim that starts at the front
walks over all of them. Job ids are UUIDv7 and contain their time, so each queue and priority has a low-water mark at
which claims start: after a full claim the last id that it returned, after a short one an id two seconds older than the
newest job. Ids below the mark do turn up: retries, transactions that commit late, a producer whose clock is behind. To
find them, a claim starts from the front at least once a second, and more often while that is cheap.

With many tasks, a claim asks for each only as many jobs as the task has lately returned: twice as many after it
returned that number, half as many after it returned far fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY, Claimed
from rowlock.core.sources.admission import Gate

if TYPE_CHECKING:
    from rowlock.core.claiming.pick import Found

NO_ID = "00000000-0000-0000-0000-000000000000"
FRONT_SECONDS = 1.0  # longest time between two claims from the front
FRONT_SHARE = 0.05  # claims from the front may take this share of the time, so cheap ones are made more often
BACK_MS = 2000  # how far behind the newest job a claim starts after all jobs were claimed
LOOK = 256  # sources in one look while jobs can start
PLAIN = ""  # in place of a source: the plain jobs, which have none and share one turn
MARKS = 8  # priorities of one queue that have a mark; each adds a range to the claim
FEW = 4  # with at most this many pairs of queue and task, a claim asks each for as many jobs as it wants
START = 16  # with more pairs, how many jobs a claim asks each for at first


class QueueTask(NamedTuple):
    """One task in one queue."""

    queue: str
    task: str


class Position(NamedTuple):
    """Where the ready jobs of one source and priority begin in the claim index. PLAIN is the source of plain jobs."""

    queue: str
    task: str
    priority: int
    source: str


class SourceRange(NamedTuple):
    """What a look reads: the next `most` sources of one task in one queue, after a position."""

    queue: str
    task: str
    low_priority: int
    low_source: str
    most: int = LOOK


class Sighting(NamedTuple):
    """A source with ready jobs at one position, and its gate at the time of the look."""

    position: Position
    gate: Gate
    last: bool = False  # the look stopped here because it had read `SourceRange.most` sources; there may be more

    @property
    def source(self) -> str:
        return self.position.source


class Range(NamedTuple):
    """What a claim of plain jobs reads: the first `most` jobs of one task in one queue, from (low_priority, low_id)
    exclusive to high_priority exclusive."""

    queue: str
    task: str
    low_priority: int = MIN_PRIORITY - 1
    low_id: str = NO_ID
    high_priority: int = MAX_PRIORITY + 1
    most: int = 1_000_000


def position_of(job: Found | Claimed) -> Position:
    return Position(job.queue, job.task, job.priority, job.source or PLAIN)


def before_all(served: QueueTask) -> Position:
    """The position before the first source of one task in one queue."""
    return Position(served.queue, served.task, MIN_PRIORITY - 1, "")


class Ranges:
    """The ranges of one worker: every task and queue that it serves, cut at the low-water marks."""

    def __init__(self, queues: Sequence[str], tasks: Iterable[str]) -> None:
        self.served = [QueueTask(queue, task) for queue in queues for task in sorted(tasks)]
        self._most = dict.fromkeys(self.served, START) if len(self.served) > FEW else {}
        self._marks: dict[str, dict[int, str]] = {}
        self._newest = 0  # the time of the newest job claimed, in ms
        self.front_at = 0.0  # the first claim after this time starts from the front
        self.front_due = 0.0  # at this time such a claim is due, even if no other is

    def forget(self) -> None:
        """Jobs with old ids may have become claimable: start the next claim from the front."""
        self.front_at = 0.0

    def next(self, n: int, front: bool) -> list[Range]:
        """What to claim `n` jobs from."""
        most = self._most
        if front or not self._marks:
            return [Range(*one, most=most.get(one, n)) for one in self.served]
        return [cut for one in self.served for cut in self._cut(*one, most.get(one, n))]

    def _cut(self, queue: str, task: str, most: int) -> Iterable[Range]:
        """The ranges of one task in one queue: before the first mark, between marks, and after the last."""
        low_priority, low_id = MIN_PRIORITY - 1, NO_ID
        for priority, job_id in sorted(self._marks.get(queue, {}).items()):
            if priority > MIN_PRIORITY:
                yield Range(queue, task, low_priority, low_id, priority, most)
            low_priority, low_id = priority, job_id
        yield Range(queue, task, low_priority, low_id, MAX_PRIORITY + 1, most)

    def learn(
        self, claimed: Sequence[Claimed], asked: int, *, front: bool, seconds: float, now: float, wall: float
    ) -> bool:
        """Set the marks, and how many jobs to ask each queue and task for, from the result of a claim that took
        `seconds`. Returns whether there may be more jobs."""
        if front:
            self.front_due = now + FRONT_SECONDS
            self.front_at = min(self.front_due, now + seconds / FRONT_SHARE)
        more = len(claimed) >= asked
        if self._most:
            more = self._learn_most(claimed, asked) or more
        # In claim order, the last job of each (queue, priority) has the largest id.
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
        """All ready jobs were claimed: the next claims start a little behind the newest one, because transactions with
        older ids may commit late. An id from a clock that is ahead counts as made now, so that it hides no other
        jobs."""
        self._newest = min(max([self._newest, *map(_time_of, ids)]), round(wall * 1000))
        floor = _id_at(self._newest - BACK_MS)
        for marks in self._marks.values():
            for priority in marks:
                marks[priority] = floor

    def _learn_most(self, claimed: Sequence[Claimed], asked: int) -> bool:
        """Adapt how many jobs to ask for; returns whether some queue and task returned as many as it was asked for."""
        gave = Counter([QueueTask(job.queue, job.task) for job in claimed])
        more = False
        for served, most in self._most.items():
            if gave[served] >= min(most, asked):
                more = True
                self._most[served] = most * 2 if most < asked else most
            elif gave[served] < most // 4:
                self._most[served] = max(START, most // 2)
        return more


def _time_of(job_id: str) -> int:
    """The time in a UUIDv7, in ms; for other ids an arbitrary number. SQLite also stores ids that aren't UUIDs."""
    try:
        return int(job_id[:8] + job_id[9:13], 16)
    except ValueError:
        return 0


def _id_at(ms: int) -> str:
    """The smallest UUIDv7 of a time in ms."""
    digits = f"{max(ms, 0):012x}"
    return f"{digits[:8]}-{digits[8:]}{NO_ID[13:]}"
