"""Statistics of queues, workers and recently finished jobs, at a cost that does not grow with the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import names
from rowlock.store.read.search import COUNT_LIMIT
from rowlock.store.upkeep import bad_rows
from rowlock.store.upkeep.bad_rows import Aside

LANES = 5_000  # the most (queue, task, priority) combinations with ready jobs that are read
LOOKS = 20_000  # the most waiting rows that are counted
LATELY_SECONDS = 300.0  # "recently" for finished jobs
ASIDE_SHOWN = 100


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The counts of one queue. `waiting` is the number of unfinished jobs whose `run_after` is in the future."""

    name: str
    queued: int
    retryable: int
    running: int
    waiting: int
    oldest_ready_seconds: float | None  # how long the oldest claimable job has been claimable
    paused: bool
    longest_running_seconds: float | None  # since the claim of the longest running attempt

    @property
    def ready(self) -> int:
        """Jobs that could start now, including those that were published to Redis and wait for a worker there."""
        return self.queued + self.retryable - self.waiting


@dataclass(frozen=True, slots=True)
class FinishedStats:
    """How many jobs reached one final state recently, and the mean run time of those that ran."""

    count: int
    mean_run_seconds: float | None


@dataclass(frozen=True, slots=True)
class LiveQueues:
    """Queues with their unfinished jobs, and live workers. If not `exact`, the numbers are lower bounds. In a lane with
    very many ready jobs, only the first ones are checked for retries."""

    queues: tuple[QueueStats, ...]
    exact: bool
    workers: int
    slots: int


@dataclass(frozen=True, slots=True)
class Stats(LiveQueues):
    """Queues, workers and recently finished jobs. If not `exact`, the numbers are lower bounds."""

    finished: Mapping[State, FinishedStats]  # in the last LATELY_SECONDS
    finished_tasks: Mapping[str, Mapping[State, FinishedStats]]  # `finished` of each task
    finished_exact: bool
    set_aside: tuple[Aside, ...]  # jobs and batches that are set aside; at most ASIDE_SHOWN


class UnknownTask(NamedTuple):
    """Waiting jobs that no live worker can take, because none serves their queue, or none has their task."""

    queue: str
    task: str
    waiting: int  # counted up to COUNT_LIMIT


class Lanes(NamedTuple):
    """The rows that all counts start from. A lane is a queue and a task."""

    workers: list[Row]  # the live ones
    heads: list[Row]  # the first ready job of each queue, task and priority
    waiting: list[Row]  # the number of delayed jobs of each lane and state


def lanes() -> Steps[Lanes]:
    """Live workers, and lanes with jobs."""
    workers, heads = (yield Call("live_workers")), (yield Call("lane_heads", n=LANES))
    return Lanes(workers, heads, (yield Call("waiting_lanes", n=LOOKS)))


def live_queues(found: Lanes, paused: Collection[str], *, retries: bool = True) -> Steps[LiveQueues]:
    """Count the jobs of each queue that has unfinished jobs, has a worker or is paused. Recognizing `retries` means
    reading their rows; without it, ready retries count as queued, which is ten times as fast on SQLite."""
    counted, oldest, longest = Counter[tuple[str, str]](), dict[str, float](), dict[str, float]()
    ready = sorted({(head.queue, head.task) for head in found.heads})
    each = max(100, min(COUNT_LIMIT, LOOKS // 2 // max(len(ready), 1)))
    sizes = (yield Call("lane_sizes", lane=ready, n=10 * each, looks=each if retries else 0)) if ready else []
    for lane in sizes:
        counted[lane.queue, "queued"] += lane.ready - lane.retries
        counted[lane.queue, "retryable"] += lane.retries
    for lane in [*sizes, *found.heads]:  # `heads` has every priority: low-priority jobs may have waited longest
        oldest[lane.queue] = max(oldest.get(lane.queue, 0.0), float(lane.age or 0.0))
    for lane in found.waiting:
        counted[lane.queue, lane.state] += lane.number
        counted[lane.queue, "waiting"] += lane.number
    for lane in (yield Call("running_lanes")):
        counted[lane.queue, "queued" if lane.unread else "running"] += lane.number
        if not lane.unread:
            longest[lane.queue] = float(lane.longest or 0.0)  # None if another program wrote the row without times
    served = {name for row in found.workers for name in names(row.queues) or ()}
    return LiveQueues(
        queues=tuple(
            QueueStats(
                name,
                queued=counted[name, "queued"],
                retryable=counted[name, "retryable"],
                running=counted[name, "running"],
                waiting=counted[name, "waiting"],
                oldest_ready_seconds=oldest.get(name),
                paused=name in paused,
                longest_running_seconds=longest.get(name),
            )
            for name in sorted({*paused, *served, *(queue for queue, _ in counted)})
        ),
        exact=len(found.heads) < LANES
        and all(lane.ready < each for lane in sizes)
        and sum(lane.number for lane in found.waiting) < LOOKS,
        workers=len(found.workers),
        slots=sum(row.pool_size for row in found.workers if isinstance(row.pool_size, int)),
    )


def unknown(found: Lanes) -> Steps[tuple[UnknownTask, ...]]:
    """Lanes with waiting jobs that no live worker can take. Of delayed jobs, only those that are due first count."""
    known = served_tasks(found.workers)
    counted = Counter[tuple[str, str]]()
    ready = sorted({(head.queue, head.task) for head in found.heads} - known)
    for lane in (yield Call("lane_sizes", lane=ready, n=COUNT_LIMIT, looks=0)) if ready else []:
        counted[lane.queue, lane.task] += lane.ready
    for lane in found.waiting:
        if (lane.queue, lane.task) not in known:
            counted[lane.queue, lane.task] += lane.number
    return tuple(UnknownTask(*lane, min(number, COUNT_LIMIT)) for lane, number in sorted(counted.items()))


def served_tasks(workers: Sequence[Row]) -> set[tuple[str, str]]:
    """The (queue, task) pairs whose jobs these workers take."""
    return {(queue, task) for row in workers for queue in names(row.queues) or () for task in names(row.tasks) or ()}


@operation(read=True)
def unknown_tasks() -> Steps[tuple[UnknownTask, ...]]:
    """Waiting jobs that no live worker can take."""
    return (yield from unknown((yield from lanes())))


@operation(read=True)
def read_queues(*, retries: bool = True) -> Steps[LiveQueues]:
    """Queues that have unfinished jobs, have a worker or are paused, at a cost that doesn't grow with the tables."""
    paused = {row.name for row in (yield Call("paused_queues"))}
    return (yield from live_queues((yield from lanes()), paused, retries=retries))


@operation(read=True)
def read_stats(live: LiveQueues | None = None) -> Steps[Stats]:
    """Statistics of queues, workers and recently finished jobs, at a cost that doesn't grow with the tables. A caller
    that has read the queues and workers already passes them as `live`."""
    live = live or (yield from read_queues().start())
    lately = yield Call("finished_lately", ago=-LATELY_SECONDS, n=COUNT_LIMIT)
    tasks = sorted({row.task for row in lately})
    return Stats(
        *(live.queues, live.exact, live.workers, live.slots),
        finished=_finished(lately),
        finished_tasks={task: _finished([row for row in lately if row.task == task]) for task in tasks},
        finished_exact=sum(row.number for row in lately) < COUNT_LIMIT,
        set_aside=tuple((yield from bad_rows.listed(ASIDE_SHOWN).start())),
    )


def _finished(rows: Sequence[Row]) -> dict[State, FinishedStats]:
    """Sum up the rows of `finished_lately` by state."""
    found: dict[State, FinishedStats] = {}
    for state in sorted({row.state for row in rows}):
        of_state = [row for row in rows if row.state == state]
        count, ran = sum(row.number for row in of_state), sum(row.ran for row in of_state)
        seconds = sum(float(row.seconds or 0.0) for row in of_state)
        found[State(state)] = FinishedStats(count, seconds / ran if ran else None)
    return found
