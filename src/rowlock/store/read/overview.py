"""The data of `rowlock top`: a snapshot, and the jobs that ended in the last minutes.

Ended jobs are read from the counters that triggers keep, never by counting rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from rowlock.core.states import FINAL
from rowlock.store import workers
from rowlock.store.engine.operation import Steps, operation
from rowlock.store.read import counters
from rowlock.store.read.counts import QueueStats
from rowlock.store.read.snapshot import Snapshot
from rowlock.store.sources import sources

MINUTES = 15  # in the sparkline of a queue
LATELY_MINUTES = 5
SOURCES_SHOWN = 50
FINAL_STATES = frozenset(str(state) for state in FINAL)


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """One queue: its unfinished jobs, and the jobs that ended in the last minutes."""

    live: QueueStats
    done: int  # jobs that ended in the last LATELY_MINUTES
    failed: int  # attempts that failed, timed out or were lost in that time
    p95_run_seconds: float | None
    minutes: tuple[int, ...]  # jobs that ended in each of the last MINUTES, oldest first


@dataclass(frozen=True, slots=True)
class Overview:
    at: datetime
    queues: tuple[QueueOverview, ...]
    exact: bool
    workers: tuple[workers.Worker, ...]  # the live ones
    slots: int
    sources: tuple[sources.BusySource, ...]
    ended: int  # all jobs that have ended since the beginning
    failed: int  # all attempts that have failed, timed out or been lost since the beginning


@operation(read=True)
def overview(found: Snapshot) -> Steps[Overview]:
    """Combine a snapshot with the counts of the last minutes."""
    first = found.at.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
    ends = yield from counters.by_queue(first).start()
    spread = yield from counters.spread(found.at - timedelta(minutes=LATELY_MINUTES)).start()
    totals = yield from counters.totals().start()
    queues = {name: QueueStats(name, 0, 0, 0, 0, None, False, None) for name in ends if name}
    queues |= {queue.name: queue for queue in found.queues}
    return Overview(
        at=found.at,
        queues=tuple(_queue(queues[name], ends.get(name, {}), spread.get(name), first) for name in sorted(queues)),
        exact=found.exact,
        workers=tuple(worker for worker in found.listed if worker.alive),
        slots=found.slots,
        sources=tuple((yield from sources.busy(SOURCES_SHOWN).start())),
        ended=sum(total.count for total in totals if total.what in FINAL_STATES),
        failed=sum(total.count for total in totals if total.what in counters.FAILURES),
    )


def _queue(
    live: QueueStats,
    ends: Mapping[datetime, Mapping[str, int]],
    spread: tuple[list[int], list[int]] | None,
    first: datetime,
) -> QueueOverview:
    minutes = [ends.get(first + timedelta(minutes=n), {}) for n in range(MINUTES)]
    done = [sum(number for what, number in minute.items() if what in FINAL_STATES) for minute in minutes]
    failed = [sum(minute.get(what, 0) for what in counters.FAILURES) for minute in minutes]
    return QueueOverview(
        live,
        sum(done[-LATELY_MINUTES:]),
        sum(failed[-LATELY_MINUTES:]),
        counters.percentile(spread[0], 0.95) if spread else None,
        tuple(done),
    )
