"""Every metric that Rowlock exports: its name, kind, labels and meaning.

The exporters and the reference page are made from this list, and tests compare it with what is exported. Units are base
units, and every label has a bounded number of values: no job id, no URL, no owner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

# Upper bounds of the buckets of both histograms, in seconds: 5 ms to one hour.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
OTHER = "other"  # the value of a label for everything beyond MOST values
MOST = 100  # values of one label


class Metric(NamedTuple):
    name: str
    kind: Kind
    # In a process of this kind, which starts at 0, or (server) in the database.
    counted_in: Literal["client", "worker", "dispatcher", "bridge", "server"]
    help: str
    labels: tuple[str, ...] = ()


TASK = ("queue", "task")
ENDS = (*TASK, "outcome")
_ALL = (
    Metric(
        "rowlock_jobs_enqueued_total",
        "counter",
        "client",
        "Jobs that this process enqueued, in handlers, through the API or in its own code",
        TASK,
    ),
    Metric(
        "rowlock_attempts_total", "counter", "worker", "Attempts that ended in this process, by their outcome", ENDS
    ),
    Metric("rowlock_job_run_seconds", "histogram", "worker", "How long attempts that succeeded or failed ran", TASK),
    Metric(
        "rowlock_job_wait_seconds",
        "histogram",
        "worker",
        "How long jobs waited from the moment when they could start to their claim, by the database's clock",
        TASK,
    ),
    Metric("rowlock_slots", "gauge", "worker", "Slots of this process that are busy and free", ("state",)),
    Metric(
        "rowlock_worker_heartbeat_age_seconds",
        "gauge",
        "worker",
        "Time since this process last reached the database with a heartbeat",
    ),
    Metric(
        "rowlock_loop_lag_seconds",
        "gauge",
        "worker",
        "How late the event loop runs its timers: the longest lag of the last seconds",
    ),
    Metric("rowlock_leases_lost_total", "counter", "worker", "Leases that this process lost while it ran the job"),
    Metric(
        "rowlock_stale_writes_refused_total",
        "counter",
        "worker",
        "Outcomes of this process that were refused because its lease was no longer good",
    ),
    Metric("rowlock_reclaims_total", "counter", "worker", "Leases of other workers that this process ended"),
    Metric(
        "rowlock_db_query_seconds",
        "histogram",
        "worker",
        "How long the operations of this worker on the database took",
        ("query",),
    ),
    Metric("rowlock_ticks_fired_total", "counter", "dispatcher", "Jobs that this dispatcher made for due ticks"),
    Metric(
        "rowlock_schedule_missed_total",
        "counter",
        "dispatcher",
        "Ticks that this dispatcher passed over because the job of an earlier tick still ran",
    ),
    Metric(
        "rowlock_bridge_lag_entries",
        "gauge",
        "bridge",
        "Entries of a Redis stream that its readers have not read",
        ("stream",),
    ),
    Metric("rowlock_deadletter_entries", "gauge", "bridge", "Messages that are kept as dead letters"),
    Metric("rowlock_queue_depth", "gauge", "server", "Jobs that are not finished, by their state", ("queue", "state")),
    Metric("rowlock_queue_ready", "gauge", "server", "Jobs that could start now", ("queue",)),
    Metric(
        "rowlock_queue_oldest_age_seconds",
        "gauge",
        "server",
        "How long the job that waits longest could have started",
        ("queue",),
    ),
    Metric(
        "rowlock_queue_longest_run_seconds",
        "gauge",
        "server",
        "How long the longest attempt has been running",
        ("queue",),
    ),
    Metric(
        "rowlock_jobs_finished_total",
        "counter",
        "server",
        "Jobs that ever ended, by the state in which they ended, counted in the transaction that ended them",
        ENDS,
    ),
    Metric(
        "rowlock_attempts_unsuccessful_total",
        "counter",
        "server",
        "Attempts that ever ended without success, by their outcome, counted in the transaction that ended them",
        ENDS,
    ),
    Metric("rowlock_workers", "gauge", "server", "Workers that are alive"),
    Metric("rowlock_workers_slots", "gauge", "server", "Slots of all workers that are alive"),
    Metric(
        "rowlock_source_state",
        "gauge",
        "server",
        "1 for the state that a source is in; for `other`, how many sources are in it",
        ("source", "state"),
    ),
    Metric(
        "rowlock_source_tokens", "gauge", "server", "Starts that the rate limit of a source allows now", ("source",)
    ),
    Metric("rowlock_schedule_late_seconds", "gauge", "server", "How long the tick that is due longest has been due"),
    Metric(
        "rowlock_problems", "gauge", "server", "Things that are wrong now, as `rowlock doctor` names them", ("kind",)
    ),
)
METRICS = {metric.name: metric for metric in _ALL}


class SecondsHistogram:
    """Counts of values in buckets. One thread writes, others read: they copy the list of counts at once."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.sum += value

    def observe_all(self, values: list[float]) -> None:
        """Sort first: that takes one search for each bucket instead of one for each value."""
        values.sort()
        passed = 0
        for bucket, bound in enumerate(BOUNDS):
            if passed == len(values):
                break
            upto = bisect_right(values, bound, passed)
            self.counts[bucket] += upto - passed
            passed = upto
        self.counts[-1] += len(values) - passed
        self.sum += sum(values)


class Sample(NamedTuple):
    """One series of a metric: the values of its labels, and a number or a histogram."""

    labels: tuple[str, ...]
    value: float | SecondsHistogram


Samples = Mapping[str, Iterable[Sample]]  # by the name of the metric


class Bounded:
    """Values of a label, at most MOST of them: the first that come, then `other`."""

    def __init__(self) -> None:
        self._seen = set[str]()

    def __call__(self, value: str) -> str:
        if value in self._seen:
            return value
        if len(self._seen) >= MOST:
            return OTHER
        self._seen.add(value)
        return value
