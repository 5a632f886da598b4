"""Every metric that Rowlock exports: its name, its kind, its labels and what it means.

The exporters and the reference page are made from this list, and tests compare it with what is exported. Units are base
units, and no label can take any number of values: no job id, no URL, no owner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Place = Literal["client", "worker", "dispatcher", "bridge", "server"]

# Upper bounds of the buckets of both histograms, in seconds: 5 ms to one hour.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
OTHER = "other"  # the label's value of all that are too many
MOST = 100  # values of one label


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    place: Place  # whose numbers these are: a process' own, which end with it, or (server) the database's
    help: str


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "rowlock_jobs_enqueued_total",
            "counter",
            ("queue", "task"),
            "client",
            "Jobs that this process enqueued, in handlers, through the API or in its own code",
        ),
        Metric(
            "rowlock_attempts_total",
            "counter",
            ("queue", "task", "outcome"),
            "worker",
            "Attempts that ended in this process, by their outcome",
        ),
        Metric(
            "rowlock_job_run_seconds",
            "histogram",
            ("queue", "task"),
            "worker",
            "How long attempts that succeeded or failed ran",
        ),
        Metric(
            "rowlock_job_wait_seconds",
            "histogram",
            ("queue", "task"),
            "worker",
            "How long jobs waited from the moment when they could start to their claim, by the database's clock",
        ),
        Metric("rowlock_slots", "gauge", ("state",), "worker", "Slots of this process that are busy and free"),
        Metric(
            "rowlock_worker_heartbeat_age_seconds",
            "gauge",
            (),
            "worker",
            "Time since this process last reached the database with a heartbeat",
        ),
        Metric(
            "rowlock_loop_lag_seconds",
            "gauge",
            (),
            "worker",
            "How late the event loop runs its timers: the longest lag of the last seconds",
        ),
        Metric(
            "rowlock_leases_lost_total", "counter", (), "worker", "Leases that this process lost while it ran the job"
        ),
        Metric(
            "rowlock_stale_writes_refused_total",
            "counter",
            (),
            "worker",
            "Outcomes of this process that were refused because its lease was no longer good",
        ),
        Metric("rowlock_reclaims_total", "counter", (), "worker", "Leases of other workers that this process ended"),
        Metric(
            "rowlock_db_query_seconds",
            "histogram",
            ("query",),
            "worker",
            "How long the operations of this worker on the database took",
        ),
        Metric(
            "rowlock_ticks_fired_total", "counter", (), "dispatcher", "Jobs that this dispatcher made for due ticks"
        ),
        Metric(
            "rowlock_schedule_missed_total",
            "counter",
            (),
            "dispatcher",
            "Ticks that this dispatcher passed over because the job of an earlier tick still ran",
        ),
        Metric(
            "rowlock_bridge_lag_entries",
            "gauge",
            ("stream",),
            "bridge",
            "Entries of a Redis stream that its readers have not read",
        ),
        Metric("rowlock_deadletter_entries", "gauge", (), "bridge", "Messages that are kept as dead letters"),
        Metric(
            "rowlock_queue_depth", "gauge", ("queue", "state"), "server", "Jobs that are not finished, by their state"
        ),
        Metric("rowlock_queue_ready", "gauge", ("queue",), "server", "Jobs that could start now"),
        Metric(
            "rowlock_queue_oldest_age_seconds",
            "gauge",
            ("queue",),
            "server",
            "How long the job that waits longest could have started",
        ),
        Metric(
            "rowlock_queue_longest_run_seconds",
            "gauge",
            ("queue",),
            "server",
            "How long the longest attempt has been running",
        ),
        Metric(
            "rowlock_jobs_finished_total",
            "counter",
            ("queue", "task", "outcome"),
            "server",
            "Jobs that ever ended, by the state in which they ended, counted in the transaction that ended them",
        ),
        Metric(
            "rowlock_attempts_unsuccessful_total",
            "counter",
            ("queue", "task", "outcome"),
            "server",
            "Attempts that ever ended without success, by their outcome, counted in the transaction that ended them",
        ),
        Metric("rowlock_workers", "gauge", (), "server", "Workers that are alive"),
        Metric("rowlock_workers_slots", "gauge", (), "server", "Slots of all workers that are alive"),
        Metric(
            "rowlock_source_state",
            "gauge",
            ("source", "state"),
            "server",
            "1 for the state that a source is in; for `other`, how many sources are in it",
        ),
        Metric(
            "rowlock_source_tokens", "gauge", ("source",), "server", "Starts that the rate limit of a source allows now"
        ),
        Metric(
            "rowlock_schedule_late_seconds", "gauge", (), "server", "How long the tick that is due longest has been due"
        ),
    )
}


class Histogram:
    """Counts of values in buckets. One thread writes, others read: they copy the list of counts at once."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.sum += value

    def observe_all(self, values: list[float]) -> None:
        """Many more: sorted first, they need one search for each bucket and not for each value."""
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
    value: float | Histogram


Samples = Mapping[str, Iterable[Sample]]  # by the name of the metric


class Bounded:
    """Values of a label, at most MOST of them: the first that come, then `other`."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._seen = most, set[str]()

    def __call__(self, value: str) -> str:
        if value in self._seen:
            return value
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(value)
        return value


def number(name: str, value: float, *labels: str) -> tuple[str, Sequence[Sample]]:
    """A metric with one series."""
    return name, (Sample(labels, value),)
