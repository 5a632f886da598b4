"""What operators watch live: the counts of the queues, and the jobs that changed recently.

Jobs without an owner write no events, because events would slow them down. So operators are not sent events but
snapshots of the state: the difference between two snapshots shows what has changed, even if some were missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from rowlock.core.states import LIVE, State
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import LATEST, moment, record

LANES = 1_000  # most (queue, task, priority) combinations with ready jobs that are read
ENTRIES = 20_000  # most index entries that one call of `queues` counts
FEWEST = 100  # of these entries, counted in each lane at least
RECENT = 50  # most jobs of each kind: newest, running, finished
STATES = frozenset(map(str, State))


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The counts of one queue."""

    name: str
    ready: int = 0  # claimable jobs
    waiting: int = 0  # jobs whose `run_after` is in the future
    running: int = 0
    paused: bool = False
    exact: bool = True  # False: `ready` or `waiting` is a lower bound


@dataclass(frozen=True, slots=True)
class Change:
    """A job as operators see it in a live message."""

    id: str
    task: str
    queue: str
    state: State
    owner: str | None
    attempt: int
    progress: int | None
    error_code: str | None
    at: datetime  # time of the last change


@operation(read=True)
def queues(lanes: int) -> Steps[tuple[Mapping[str, QueueCounts], int]]:
    """The counts of each queue with jobs, at a bounded cost, and the number of lanes found. Give that number as `lanes`
    to the next call: the ENTRIES that one call may count are divided by it."""
    each = max(FEWEST, ENTRIES // 2 // max(lanes, 1))
    rows = yield Call("queue_counts", each=each, waiting=ENTRIES // 2, lanes=LANES)
    counted, inexact = Counter[tuple[str, str]](), set[str]()
    all_waiting = sum(row.number for row in rows if row.kind == "waiting")
    for row in rows:
        counted[row.queue, row.kind] += row.number
        if (row.kind == "ready" and row.number >= each) or (row.kind == "waiting" and all_waiting >= ENTRIES // 2):
            inexact.add(row.queue)
    found: dict[str, QueueCounts] = {}
    for name in sorted({row.queue for row in rows}):
        ready, waiting, running = (counted[name, kind] for kind in ("ready", "waiting", "running"))
        found[name] = QueueCounts(name, ready, waiting, running, counted[name, "paused"] > 0, name not in inexact)
    return found, sum(row.kind == "ready" for row in rows)


@operation(read=True)
def recent(known: Collection[str]) -> Steps[dict[str, Change]]:
    """Jobs that may have changed recently: the newest, the running and the recently finished ones, and the jobs `known`
    from an earlier call. The number of rows is bounded."""
    rows = yield Call("recent_jobs", n=RECENT, known=[(job_id,) for job_id in known])
    found: dict[str, Change] = {}
    for row in rows:
        if row.state in STATES:  # skip a row with an unknown state instead of failing
            found[row.id] = record(Change, row, at=moment(row.at) or LATEST)
    return found


@operation(read=True)
def marks() -> Steps[dict[str, str | None]]:
    """For each page of a dashboard but those about jobs and queues: a text that differs when it may have changed."""
    return {row.panel: row.mark for row in (yield Call("panel_marks"))}


def unfinished(jobs: Mapping[str, Change]) -> list[str]:
    """The ids of those jobs that have not finished: `known` for the next call of `recent`."""
    return [job.id for job in jobs.values() if job.state in LIVE]
