"""Counters of ended jobs and failed attempts: totals, numbers per minute and hour, wait and run times.

Triggers count in the transaction of each change, so after any crash the numbers still agree with the rows. Every few
seconds, workers and bridges sum up the new counts (tallies); readers add both parts in one statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rowlock.core.policy import DAY
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.records import moment, record
from rowlock.store.engine.store import Store
from rowlock.store.read.counts import read_queues

# Upper bounds of the buckets for wait and run times, in seconds. The triggers of the schema repeat them.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
BUCKETS = len(BOUNDS) + 1  # the last one has no bound
FAILURES = ("attempt.failed", "attempt.timed_out", "attempt.lost")
AT_ONCE = 5_000  # the most rows that one `sum_up` moves
MINUTE_SECONDS, HOUR_SECONDS = 26 * 3600.0, 35 * DAY  # how long numbers per minute and per hour are kept
MOST_SAMPLES = 50_000


@dataclass(frozen=True, slots=True)
class Total:
    """A total for one queue and task since the beginning."""

    queue: str
    task: str
    what: str  # a job's final state, or `attempt.` and the outcome of an attempt that did not succeed
    count: int


class QueueSample(NamedTuple):
    at: datetime
    queue: str
    ready: int
    waiting: int
    running: int
    oldest_seconds: float | None


@operation(read=True)
def totals() -> Steps[list[Total]]:
    return [record(Total, row, count=int(row.number)) for row in (yield Call("totals"))]


def _empty() -> list[int]:
    return [0] * BUCKETS


# --- in time


@operation(read=True)
def by_time(
    since: datetime, queue: str | None = None, task: str | None = None, seconds: int = 60
) -> Steps[dict[datetime, dict[str, int]]]:
    """The counts of each minute (`seconds` is 60) or hour (3600) since a moment, without empty ones. The newest counts
    have their minute in either case."""
    found: dict[datetime, dict[str, int]] = {}
    for row in (yield Call("ends_by_time", seconds=seconds, since=since, queue=queue, task=task)):
        found.setdefault(moment(row.at), {})[row.what] = int(row.number)
    return found


@operation(read=True)
def by_queue(since: datetime) -> Steps[dict[str, dict[datetime, dict[str, int]]]]:
    """The ends and failures of each queue per minute, since a moment."""
    found: dict[str, dict[datetime, dict[str, int]]] = {}
    for row in (yield Call("ends_by_queue", seconds=60, since=since)):
        found.setdefault(row.queue, {}).setdefault(moment(row.at), {})[row.what] = int(row.number)
    return found


@operation(read=True)
def heat(
    what: str, since: datetime, queue: str | None = None, task: str | None = None, seconds: int = 60
) -> Steps[dict[datetime, list[int]]]:
    """For each minute or hour since a moment (see by_time), the number of attempts in each bucket of run times (`what`
    is "run"), or of succeeded jobs in each bucket of wait times ("wait")."""
    found = defaultdict[datetime, list[int]](_empty)
    for row in (yield Call("buckets_by_time", what=what, seconds=seconds, since=since, queue=queue, task=task)):
        found[moment(row.at)][row.bucket] += int(row.number)
    return dict(found)


@operation(read=True)
def spread(since: datetime) -> Steps[dict[str, tuple[list[int], list[int]]]]:
    """For each queue, the run times and the wait times of jobs that succeeded since a moment, in buckets."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for row in (yield Call("spread_by_queue", seconds=60, since=since)):
        for counts, bucket in zip(
            found.setdefault(row.queue, (_empty(), _empty())), (row.run_bucket, row.wait_bucket), strict=True
        ):
            if bucket >= 0:
                counts[bucket] += int(row.number)
    return found


def percentile(counts: Sequence[int], part: float) -> float | None:
    """A percentile of the counted seconds (`part` is 0 to 1), interpolated within its bucket. None without counts."""
    total = sum(counts)
    if not total:
        return None
    left = part * total
    for bucket, count in enumerate(counts):
        if left <= count:
            low = BOUNDS[bucket - 1] if bucket else 0.0
            high = BOUNDS[bucket] if bucket < len(BOUNDS) else BOUNDS[-1]
            return low + (high - low) * (left / count)
        left -= count
    return BOUNDS[-1]


# --- keeping


@operation(read=True)
def waiting() -> Steps[bool]:
    """Whether there are counts that have not been summed up."""
    return bool((yield Call("any_tally")))


@operation(repeatable=True)
def sum_up() -> Steps[bool]:
    """Add the triggers' counts to minutes, hours and totals, unless another process does. True: there may be more."""
    if (yield from dialect()).many_writers:
        return bool((yield Call("sum_up", n=AT_ONCE))[0].moved == AT_ONCE)
    yield Call("sum_up_rollups", seconds=60)
    yield Call("sum_up_rollups", seconds=3600)
    yield Call("sum_up_totals")
    yield Call("sum_up_remove")
    return False


@operation(repeatable=True)
def forget() -> Steps[None]:
    """Delete old minutes, hours and samples. The totals stay."""
    yield Call("forget_rollups", seconds=60, ago=-MINUTE_SECONDS)
    yield Call("forget_rollups", seconds=3600, ago=-HOUR_SECONDS)
    yield Call("forget_samples", ago=-HOUR_SECONDS)


async def sample(store: Store) -> bool:
    """Store the lengths of the queues, once a minute. False if another process has done so in this minute. Counting
    takes up to 0.2 s, so it is not part of a writing transaction, for which other writers on SQLite would wait."""
    if not await store.run(_begin_sample()):
        return False
    rows = [
        (queue.name, queue.ready, queue.waiting, queue.running, queue.oldest_ready_seconds)
        for queue in (await store.run(read_queues(retries=False))).queues
        if queue.name and (queue.ready or queue.waiting or queue.running or queue.paused)
    ]
    if rows:
        await store.run(_write_samples(rows))
    return True


@operation(single=True)
def _begin_sample() -> Steps[bool]:
    return bool((yield Call("begin_sample")))


@operation(single=True, repeatable=True)
def _write_samples(rows: Sequence[tuple[str, int, int, int, float | None]]) -> Steps[None]:
    yield Call("write_samples", s=rows)


@operation(read=True)
def samples(since: datetime, queue: str | None = None, seconds: int = 60) -> Steps[Mapping[str, list[QueueSample]]]:
    """The length of each queue in each minute (`seconds` is 60), or its maximum in each hour (3600), in order of time.
    If there are too many samples, the oldest are left out."""
    statement = "samples" if seconds == 60 else "samples_by_hour"
    found: dict[str, list[QueueSample]] = {}
    for row in reversed((yield Call(statement, since=since, queue=queue, n=MOST_SAMPLES))):
        found.setdefault(row.queue, []).append(record(QueueSample, row))
    return found
