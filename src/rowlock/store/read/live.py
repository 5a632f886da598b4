"""Counts of each queue with jobs, at a bounded cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rowlock.store.engine.operation import Call, Steps, operation

LANES = 1_000  # most (queue, task, priority) combinations with ready jobs that are read
ENTRIES = 20_000  # most index entries that one call of `queues` counts
FEWEST = 100  # of these entries, counted in each lane at least


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The counts of one queue."""

    name: str
    ready: int = 0  # claimable jobs
    waiting: int = 0  # jobs whose `run_after` is in the future
    running: int = 0
    paused: bool = False
    exact: bool = True  # False: `ready` or `waiting` is a lower bound


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
