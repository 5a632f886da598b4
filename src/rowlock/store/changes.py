"""What operators watch: how the queues stand, and the jobs that something happened to lately.

Jobs without an owner write no events, so that their drain stays as quick as it is. These two readings are the state
itself: two of them side by side tell what has changed, whatever was missed in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from rowlock.core.states import LIVE, State
from rowlock.store.engines.operation import Call, Steps, operation
from rowlock.store.times import LATEST, moment

LANES = 1_000  # (queue, task, priority) with ready jobs that are looked at
ENTRIES = 20_000  # of an index that one reading of the queues counts
FEWEST = 100  # of them in each lane
RECENT = 50  # jobs of each kind
STATES = frozenset(map(str, State))


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue now."""

    name: str
    ready: int = 0  # could be claimed now
    waiting: int = 0  # for their time
    running: int = 0
    paused: bool = False
    exact: bool = True  # else `ready` or `waiting` is at least that large


@dataclass(frozen=True, slots=True)
class Change:
    """A job as an operator is told of it."""

    id: str
    task: str
    queue: str
    state: State
    owner: str | None
    attempt: int
    progress: int | None
    error_code: str | None
    at: datetime  # of the last change


@operation(read=True)
def queues(lanes: int) -> Steps[tuple[Mapping[str, QueueCounts], int]]:
    """How each queue with jobs stands, at a bounded cost; and the number of lanes, to give the next time: all of them
    share the entries that may be counted."""
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
    """Jobs that something may have happened to lately: the newest ones, running ones, those that finished lately, and
    the jobs `known` of an earlier reading. The number of rows is bounded."""
    rows = yield Call("recent_jobs", n=RECENT, known=[(job_id,) for job_id in known])
    found: dict[str, Change] = {}
    for row in rows:
        if row.state in STATES:  # a row that somebody has spoilt is left out, and takes no other with it
            at = moment(row.at) or LATEST
            details = (row.owner, row.attempt, row.progress, row.error_code, at)
            found[row.id] = Change(row.id, row.task, row.queue, State(row.state), *details)
    return found


def unfinished(jobs: Mapping[str, Change]) -> list[str]:
    """Of these jobs, those that something will happen to: `known` for the next reading."""
    return [job.id for job in jobs.values() if job.state in LIVE]
