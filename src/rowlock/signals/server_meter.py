"""The metrics that a server reads from the database, once for all its scrapers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rowlock.signals.metrics import MOST, OTHER, Bounded, Sample, Samples
from rowlock.store.engine.operation import Operation
from rowlock.store.read import counters
from rowlock.store.read.counters import Total
from rowlock.store.read.counts import LiveQueues
from rowlock.store.read.snapshot import Snapshot, Snapshots
from rowlock.store.sources import sources
from rowlock.store.sources.sources import SourceLevel

READ_AGAIN_SECONDS = 2.0
ATTEMPT = "attempt."  # prefix of the totals of attempts; the others are of jobs


Run = Callable[[Operation[Any]], Awaitable[Any]]
Count = Callable[[Snapshot], Mapping[str, int]]  # how many things are wrong, by kind


class DatabaseMeter:
    """Reads at most every two seconds, however many programs scrape."""

    def __init__(self, run: Run, snapshots: Snapshots, count: Count) -> None:
        self._run, self._snapshots, self._count, self._lock = run, snapshots, count, asyncio.Lock()
        self._at, self._found = float("-inf"), dict[str, Sequence[Sample]]()

    async def samples(self) -> Samples:
        async with self._lock:
            if time.monotonic() >= self._at + READ_AGAIN_SECONDS:
                self._found = await self._read()
                self._at = time.monotonic()
            return self._found

    async def _read(self) -> dict[str, Sequence[Sample]]:
        found = await self._snapshots.get()
        late = max((schedule.late or 0.0 for schedule in found.schedules), default=0.0)
        return {
            **of_queues(found),
            **of_sources(await self._run(sources.levels())),
            **of_totals(await self._run(counters.totals())),
            "rowlock_schedule_late_seconds": [Sample((), max(0.0, late))],
            "rowlock_problems": [Sample((kind,), number) for kind, number in self._count(found).items()],
        }


def of_queues(stats: LiveQueues) -> dict[str, Sequence[Sample]]:
    """Depth, age and run times of queues, and the workers. The queues with most jobs are named, the rest is `other`."""
    queues = sorted(stats.queues, key=lambda queue: (-queue.queued - queue.retryable - queue.running, queue.name))
    named, rest = queues[:MOST], queues[MOST:]
    depth, ready, age, longest = list[Sample](), list[Sample](), list[Sample](), list[Sample]()
    for name, group in [*((queue.name, [queue]) for queue in named), *([(OTHER, rest)] if rest else [])]:
        for state in ("queued", "retryable", "running"):
            depth.append(Sample((name, state), sum(getattr(queue, state) for queue in group)))
        ready.append(Sample((name,), sum(queue.ready for queue in group)))
        age.append(Sample((name,), max(queue.oldest_ready_seconds or 0.0 for queue in group)))
        longest.append(Sample((name,), max(queue.longest_running_seconds or 0.0 for queue in group)))
    return {
        "rowlock_queue_depth": depth,
        "rowlock_queue_ready": ready,
        "rowlock_queue_oldest_age_seconds": age,
        "rowlock_queue_longest_run_seconds": longest,
        "rowlock_workers": [Sample((), stats.workers)],
        "rowlock_workers_slots": [Sample((), stats.slots)],
    }


def of_totals(totals: Sequence[Total]) -> dict[str, Sequence[Sample]]:
    """Jobs that ended and attempts that did not succeed, since the tables were made."""
    queues, tasks = Bounded(), Bounded()
    jobs, attempts = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for total in sorted(totals, key=lambda total: (total.queue, total.task)):
        counted = attempts if total.what.startswith(ATTEMPT) else jobs
        counted[queues(total.queue), tasks(total.task), total.what.removeprefix(ATTEMPT)] += total.count
    return {
        "rowlock_jobs_finished_total": [Sample(*each) for each in sorted(jobs.items())],
        "rowlock_attempts_unsuccessful_total": [Sample(*each) for each in sorted(attempts.items())],
    }


def of_sources(levels: Sequence[SourceLevel]) -> dict[str, Sequence[Sample]]:
    """State and tokens of sources: the first are named, the rest is `other`."""
    named, rest = levels[:MOST], levels[MOST:]
    states = [Sample((level.name, level.state), 1) for level in named]
    tokens = [Sample((level.name,), level.tokens) for level in named if level.tokens is not None]
    if rest:
        states += [Sample((OTHER, state), count) for state, count in sorted(Counter(one.state for one in rest).items())]
        tokens.append(Sample((OTHER,), sum(level.tokens for level in rest if level.tokens is not None)))
    return {"rowlock_source_state": states, "rowlock_source_tokens": tokens}
