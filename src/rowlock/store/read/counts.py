"""Statistics of queues, workers and recently finished jobs, at a cost that does not grow with the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import names
from rowlock.store.read.search import COUNT_LIMIT
from rowlock.store.upkeep import bad_rows
from rowlock.store.upkeep.bad_rows import Aside

LANES = 5_000  # most (queue, task, priority) combinations with ready jobs that are read
HELD_LANES, HELD_SOURCES = 500, 20  # most lanes and closed sources of which is read which jobs wait for which source
LOOKS = 20_000  # most waiting rows that are counted
LATELY_SECONDS = 300.0  # "recently" for finished jobs
ASIDE_SHOWN = 100


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The counts of one queue. `waiting` are the `queued` and `retryable` jobs whose `run_after` is in the future."""

    name: str
    queued: int
    retryable: int
    running: int
    waiting: int
    oldest_ready_seconds: float | None  # how long the oldest claimable job has been claimable
    paused: bool
    longest_running_seconds: float | None  # since the claim of the longest running attempt


@dataclass(frozen=True, slots=True)
class FinishedStats:
    """How many jobs reached one final state recently, and the mean run time of those that ran."""

    count: int
    mean_run_seconds: float | None


@dataclass(frozen=True, slots=True)
class LiveQueues:
    """Queues with their unfinished jobs, and the workers that are alive. Numbers that are not exact are lower bounds.
    In a lane with very many ready jobs, only the first ones are checked for being `retryable`."""

    queues: tuple[QueueStats, ...]
    exact: bool
    workers: int
    slots: int


@dataclass(frozen=True, slots=True)
class Stats(LiveQueues):
    """Queues, workers and recently finished jobs. Numbers that are not exact are lower bounds."""

    finished: Mapping[State, FinishedStats]  # in the last LATELY_SECONDS
    finished_tasks: Mapping[str, Mapping[State, FinishedStats]]  # `finished` of each task
    finished_exact: bool
    set_aside: tuple[Aside, ...]  # jobs and batches that are set aside; at most ASIDE_SHOWN


@dataclass(frozen=True, slots=True)
class ReadyQueues:
    """How many jobs can be claimed now, by queue and state, and for how long the oldest one of each queue could be."""

    counted: Counter[tuple[str, str]]
    oldest: dict[str, float]
    exact: bool

    @property
    def ready(self) -> dict[str, int]:
        """The number of claimable jobs of each queue."""
        found = Counter[str]()
        for (queue, _), number in self.counted.items():
            found[queue] += number
        return dict(found)


def ready_queues() -> Steps[ReadyQueues]:
    """Count the claimable jobs, at a cost that does not grow with the tables. If not `exact`, there may be more."""
    counted, exact = Counter[tuple[str, str]](), True
    oldest: dict[str, float] = {}
    heads = yield Call("lane_heads", n=LANES)
    lanes = sorted({(head.queue, head.task) for head in heads})
    each = max(100, min(COUNT_LIMIT, LOOKS // 2 // max(len(lanes), 1)))
    sizes = (yield Call("lane_sizes", lane=lanes, n=10 * each, looks=each)) if lanes else []
    for lane in sizes:
        counted[lane.queue, "queued"] += lane.ready - lane.retries
        counted[lane.queue, "retryable"] += lane.retries
        exact = exact and lane.ready < each
    for lane in [*sizes, *heads]:  # `heads` has each priority: jobs of a low priority may have waited longest
        oldest[lane.queue] = max(oldest.get(lane.queue, 0.0), lane.age or 0.0)
    return ReadyQueues(counted, oldest, exact and len(heads) < LANES)


def held_queues() -> Steps[dict[str, tuple[str, ...]]]:
    """Queues with ready jobs that no worker can start, because their source or its class is paused, disabled or has an
    open breaker; with these sources and classes."""
    found: dict[str, tuple[str, ...]] = {}
    if closed := (yield Call("closed_sources", n=HELD_SOURCES)):
        for row in (yield Call("held_queues", asked=[(source.name,) for source in closed], n=HELD_LANES)):
            found[row.queue] = (*found.get(row.queue, ()), row.source)
    return found


@operation(read=True)
def read_held_queues() -> Steps[dict[str, tuple[str, ...]]]:
    """What `held_queues` says."""
    return (yield from held_queues())


@operation(read=True)
def read_queues() -> Steps[LiveQueues]:
    """Queues that have unfinished jobs, have a worker or are paused, at a cost that does not grow with the tables."""
    workers = yield Call("live_workers")
    paused = {row.name for row in (yield Call("paused_queues"))}
    ready = yield from ready_queues()
    counted, exact = ready.counted, ready.exact

    waiting = yield Call("waiting_lanes", n=LOOKS)
    for lane in waiting:
        counted[lane.queue, lane.state] += lane.number
        counted[lane.queue, "waiting"] += lane.number
    exact = exact and sum(lane.number for lane in waiting) < LOOKS
    longest: dict[str, float] = {}
    for lane in (yield Call("running_lanes")):
        counted[lane.queue, "queued" if lane.unread else "running"] += lane.number
        if not lane.unread:
            longest[lane.queue] = float(lane.longest or 0.0)  # None: another program wrote the row without times

    served = {name for row in workers for name in names(row.queues) or ()}
    every = sorted(paused | served | {queue for queue, _ in counted})
    oldest = ready.oldest
    return LiveQueues(
        queues=tuple(_queue(name, counted, oldest.get(name), name in paused, longest.get(name)) for name in every),
        exact=exact,
        workers=len(workers),
        slots=sum(row.pool_size for row in workers if isinstance(row.pool_size, int)),
    )


@operation(read=True)
def read_stats() -> Steps[Stats]:
    """Statistics of queues, workers and recently finished jobs, at a cost that does not grow with the tables."""
    live = yield from read_queues().start()
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
    """The rows of `finished_lately`, summed up by state."""
    found: dict[State, FinishedStats] = {}
    for state in sorted({row.state for row in rows}):
        of_state = [row for row in rows if row.state == state]
        count, ran = sum(row.number for row in of_state), sum(row.ran for row in of_state)
        seconds = sum(float(row.seconds or 0.0) for row in of_state)
        found[State(state)] = FinishedStats(count, seconds / ran if ran else None)
    return found


def _queue(
    name: str, counted: Counter[tuple[str, str]], oldest: float | None, paused: bool, longest: float | None
) -> QueueStats:
    queued, retryable, running, waiting = (
        counted[name, what] for what in ("queued", "retryable", "running", "waiting")
    )
    return QueueStats(name, queued, retryable, running, waiting, oldest, paused, longest)
