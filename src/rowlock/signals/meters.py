"""The metrics that one worker counts, once for each batch of jobs. Each process starts at zero."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.core.states import Outcome
from rowlock.signals.events import Watcher
from rowlock.signals.metrics import Bounded, Sample, Samples, SecondsHistogram
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Store

T = TypeVar("T")
RAN = (Outcome.FAILED, Outcome.TIMED_OUT)  # with these outcomes the time of an attempt is counted
LONGEST_WAIT = 10 * 365 * 86_400.0  # a time that another program wrote may be anything


class _Series:
    """The numbers of one task in one queue."""

    __slots__ = ("outcomes", "run", "wait")

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.run, self.wait = SecondsHistogram(), SecondsHistogram()


class WorkerMeter(Watcher):
    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}
        self._tasks, self._queues = Bounded(), Bounded()
        self._lost = self._refused = self._reclaimed = 0
        self._queries = defaultdict[str, SecondsHistogram](SecondsHistogram)

    def _of(self, queue: str, task: str) -> _Series:
        found = self._series.get((queue, task))
        if found is None:
            # Beyond the bound, many names share one series, which is looked up again each time.
            key = (self._queues(queue), self._tasks(task))
            found = self._series.get(key) or self._series.setdefault(key, _Series())
        return found

    def claimed(self, jobs: Sequence[Claimed], sent: float) -> None:
        for series, waits in self._grouped((job, job.waited) for job in jobs):
            if min(waits) < 0.0 or max(waits) > LONGEST_WAIT:
                waits = [min(max(wait, 0.0), LONGEST_WAIT) for wait in waits]
            series.wait.observe_all(waits)

    def succeeded(self, done: Sequence[tuple[Claimed, float]]) -> None:
        for series, runs in self._grouped(done):
            series.outcomes["succeeded"] += len(runs)
            series.run.observe_all(runs)

    def _grouped(self, seconds: Iterable[tuple[Claimed, float]]) -> list[tuple[_Series, list[float]]]:
        groups = defaultdict[tuple[str, str], list[float]](list)
        for job, each in seconds:
            groups[job.queue, job.task].append(each)
        return [(self._of(*key), group) for key, group in groups.items()]

    def ended(self, job: Claimed, transition: Transition, seconds: float) -> None:
        series = self._of(job.queue, job.task)
        series.outcomes[str(transition.outcome)] += 1
        if transition.outcome in RAN:
            series.run.observe(seconds)

    def refused(self, job: Claimed, outcome: Outcome) -> None:
        self._refused += 1

    def lost(self, job: Claimed) -> None:
        self._lost += 1

    def reclaimed(self, lost: Sequence[tuple[Claimed, Transition]]) -> None:
        self._reclaimed += len(lost)

    def query(self, name: str, seconds: float) -> None:
        self._queries[name].observe(seconds)

    def samples(self) -> Samples:
        """The numbers now, for any thread."""
        series = sorted(self._series.copy().items())
        outcomes = [
            Sample((*key, outcome), count)
            for key, each in series
            for outcome, count in sorted(each.outcomes.copy().items())
        ]
        return {
            "rowlock_attempts_total": outcomes,
            "rowlock_job_run_seconds": [Sample(key, each.run) for key, each in series],
            "rowlock_job_wait_seconds": [Sample(key, each.wait) for key, each in series],
            "rowlock_db_query_seconds": [Sample((name,), each) for name, each in sorted(self._queries.copy().items())],
            "rowlock_leases_lost_total": [Sample((), self._lost)],
            "rowlock_stale_writes_refused_total": [Sample((), self._refused)],
            "rowlock_reclaims_total": [Sample((), self._reclaimed)],
        }


class TimedStore:
    """A store that measures how long each of its operations takes."""

    def __init__(self, store: Store, meter: WorkerMeter) -> None:
        self._store, self._meter = store, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, op: Operation[T]) -> T:
        began = time.perf_counter()
        try:
            return await self._store.run(op)
        finally:
            self._meter.query(op.name, time.perf_counter() - began)
