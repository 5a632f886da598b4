"""The snapshot: everything an operator needs to see what is wrong, at a cost that doesn't grow with the tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from rowlock.core.sources.admission import standing
from rowlock.store import queues, workers
from rowlock.store.engine import clock
from rowlock.store.engine.operation import Call, Operation, Steps, operation
from rowlock.store.engine.records import record
from rowlock.store.read import job_rows
from rowlock.store.read.counts import ASIDE_SHOWN, LiveQueues, UnknownTask, lanes, live_queues, unknown
from rowlock.store.read.search import COUNT_LIMIT
from rowlock.store.upkeep import bad_rows
from rowlock.store.upkeep.bad_rows import Aside
from rowlock.store.workers import Worker

MOST = 1_000  # the most running jobs, closed sources and schedules that are read
HELD_LANES, HELD_SOURCES = 500, 20  # the most lanes and closed sources that are read for `Snapshot.held`
NEVER_SHOWN = 20
DEAD_SECONDS = 600.0  # how far back dead jobs are counted
FRESH_SECONDS = 1.0


class RunningJob(NamedTuple):
    """A running job, and how long its attempt has been running."""

    job_id: str
    queue: str
    task: str
    worker: str
    seconds: float
    overdue: float | None = None  # seconds since the end of its lease; negative while it holds
    attempt: int = 1
    since: datetime | None = None  # None if another program wrote the row without times
    progress: int | None = None
    phase: str | None = None


class ClosedSource(NamedTuple):
    """A source or class whose jobs may not start now."""

    name: str
    state: str  # in the words of `standing`
    seconds: float | None = None  # since its breaker opened; None if it isn't open
    error: str | None = None


class TroubledSchedule(NamedTuple):
    """A schedule with a due tick, or one that can't fire."""

    id: str
    late: float | None = None  # seconds since its next tick became due; negative before that
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot(LiveQueues):
    """The state of the whole system at one moment. Lists that may be cut off begin with the worst."""

    at: datetime  # by the database's clock
    listed: tuple[Worker, ...] = ()  # workers, live ones first
    paused: Mapping[str, datetime] = field(default_factory=dict)  # queues, and since when
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # closed sources that ready jobs need, by queue
    running: tuple[RunningJob, ...] = ()  # the longest first
    dead: Mapping[float, Mapping[str, int]] = field(default_factory=dict)  # by task, for each requested period
    sources: tuple[ClosedSource, ...] = ()
    schedules: tuple[TroubledSchedule, ...] = ()
    unknown: tuple[UnknownTask, ...] = ()
    set_aside: tuple[Aside, ...] = ()
    never_due: tuple[tuple[str, str], ...] = ()  # (id, task) of jobs that are scheduled for after 2199

    @property
    def served(self) -> frozenset[str]:
        """The queues that a live worker serves."""
        return frozenset(queue for worker in self.listed if worker.alive for queue in worker.queues)


@operation(read=True)
def running(n: int) -> Steps[list[RunningJob]]:
    """Up to `n` running jobs, the longest first."""
    rows = yield Call("running_jobs", n=n)
    return [record(RunningJob, row, seconds=float(row.seconds or 0.0)) for row in rows]


@operation(read=True)
def snapshot(within: Collection[float] = (DEAD_SECONDS,)) -> Steps[Snapshot]:
    """Read a snapshot; it counts the jobs that became dead within each of these periods (in seconds)."""
    at = yield from clock.now().start()
    found, paused = (yield from lanes()), (yield from queues.paused().start())
    live = yield from live_queues(found, paused)
    dead: dict[float, dict[str, int]] = {}
    for seconds in sorted(within):
        rows = yield Call("dead_lately", ago=-seconds, n=COUNT_LIMIT)
        dead[seconds] = {row.task: int(row.number) for row in rows}
    closed = yield Call("closed_sources", n=MOST)
    held: dict[str, tuple[str, ...]] = {}
    if closed and found.heads:
        for row in (
            yield Call("held_queues", asked=[(source.name,) for source in closed[:HELD_SOURCES]], n=HELD_LANES)
        ):
            held[row.queue] = (*held.get(row.queue, ()), row.source)
    late = yield Call("troubled_schedules", n=MOST)
    return Snapshot(
        *(live.queues, live.exact, live.workers, live.slots, at),
        listed=tuple((yield from workers.workers().start())),
        paused=paused,
        held=held,
        running=tuple(job for job in (yield from running(MOST).start()) if job.since is not None),
        dead=dead,
        sources=tuple(
            ClosedSource(row.name, standing(row.enabled, row.opened, row.paused), row.seconds, row.last_error)
            for row in closed
        ),
        schedules=tuple(record(TroubledSchedule, row) for row in late),
        unknown=(yield from unknown(found)),
        set_aside=tuple((yield from bad_rows.listed(ASIDE_SHOWN).start())),
        never_due=tuple((yield from job_rows.never_due(NEVER_SHOWN).start())),
    )


class Snapshots:
    """The newest snapshot, shared by all readers in a process. Once it is a second old, the next reader renews it."""

    def __init__(self, run: Callable[[Operation[Snapshot]], Awaitable[Snapshot]]) -> None:
        self._run, self._lock = run, asyncio.Lock()
        self._found: Snapshot | None = None
        self._read_at, self._changed_at = 0.0, 0.0  # when the last read began; when the last change was announced

    async def get(self) -> Snapshot:
        """A snapshot that is at most a second old, and not older than the last announced change."""
        async with self._lock:
            now = time.monotonic()
            if self._found is None or now >= self._read_at + FRESH_SECONDS or self._changed_at >= self._read_at:
                self._found = await self._run(snapshot())
                self._read_at = now
            return self._found

    def changed(self) -> None:
        """Announce a change: readers no longer get snapshots from before it."""
        self._changed_at = time.monotonic()
