"""`rowlock stats`: workers, queues and finished jobs at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rowlock.cli.kit.failures import FAILED, complain
from rowlock.cli.kit.output import cell, counted, record, show, show_json, words
from rowlock.cli.kit.target import DataTarget
from rowlock.cli.kit.times import duration
from rowlock.cli.verbs import queues
from rowlock.core.errors import ConfigError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.bridge.stats import BridgeNumbers
    from rowlock.store.engine.store import Store
    from rowlock.store.read.counts import FinishedStats, Stats

TIMES_SECONDS = 3600.0
_P95 = {"wait_p95": None, "run_p95": None}
UNKNOWN = ("queue", "task", "waiting")
Held = Mapping[str, tuple[str, ...]]  # closed sources that ready jobs need, by queue


def stats(
    target: DataTarget,
    max_queued: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Exit with code 1 if more than N jobs wait in a queue")
    ] = None,
    max_running: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Exit with code 1 if a job has been running longer, e.g. 5m")
    ] = None,
) -> None:
    """Show workers, queues and jobs that finished lately. Exit 1 if a given limit is exceeded."""
    from rowlock.store.read.counts import LATELY_SECONDS, read_held_queues, read_stats
    from rowlock.store.read.explain import unknown_tasks

    longest = None if max_running is None else duration(max_running, "--max-running")

    async def read(app: Rowlock) -> tuple[Stats, Held, Counts, list[tuple[str, str, int]], BridgeNumbers | None]:
        store = await app.store()
        return (
            await store.run(read_stats()),
            {} if max_queued is None else await store.run(read_held_queues()),
            await _counts(store),
            await store.run(unknown_tasks()),
            await _bridge(app),
        )

    found, held, counts, waiting, bridge = target.look(read)
    unknown = [dict(zip(UNKNOWN, row, strict=True)) for row in waiting]
    alerts = list(_alerts(found, held, max_queued, longest))
    if target.as_json:
        redis = {} if bridge is None else {"redis": record(bridge)}
        show_json({**record(found), **counts._asdict(), "unknown_tasks": unknown, "alerts": alerts, **redis})
    else:
        _show(found, counts, LATELY_SECONDS)
        if unknown:
            print("\nNo live worker can run these jobs: none serves the queue, or none has the task.")
            show(unknown, UNKNOWN, as_json=False, empty="")
        if bridge is not None:
            _show_bridge(bridge)
        for alert in alerts:
            complain(alert)
    if alerts:
        raise typer.Exit(FAILED)


class Counts(NamedTuple):
    """What the counters say: all that ever ended, and how long the last hour's successes waited and ran."""

    totals: dict[str, int]  # by final state, and attempts by `attempt.` and their outcome
    times: dict[str, dict[str, float | None]]  # by queue: run_p50, run_p95, wait_p50, wait_p95, in seconds


async def _counts(store: Store) -> Counts:
    from rowlock.store.read import counters

    totals = Counter[str]()
    for total in await store.run(counters.totals()):
        totals[total.what] += total.count
    since = datetime.now(UTC) - timedelta(seconds=TIMES_SECONDS)
    times = {}
    for queue, (run, wait) in (await store.run(counters.spread(since))).items():
        found = {"run": run, "wait": wait}
        times[queue] = {
            f"{name}_p{part}": counters.percentile(buckets, part / 100)
            for name, buckets in found.items()
            for part in (50, 95)
        }
    return Counts(totals, times)


async def _bridge(app: Rowlock) -> BridgeNumbers | None:
    """The numbers of the Redis streams; None if no Redis is configured or, with a message, if it is unreachable."""
    if app.settings.redis.url is None:
        return None
    try:
        from rowlock.bridge.stats import numbers
        from rowlock.bridge.streams import opened_streams

        async with opened_streams(app.settings.redis) as streams:
            return await numbers(app, streams)
    except ConfigError as error:
        complain(str(error))
        return None


def _show_bridge(found: BridgeNumbers) -> None:
    numbers = "".join(f", {number} {name.replace('_', ' ')}" for name, number in found.counters.items())
    requests = counted(found.unread, "request")
    print(f"\nredis      {requests} not answered, {counted(found.dead_letters, 'dead letter')}{numbers}")
    show(found.streams, ("stream", "group", "lag", "pending"), as_json=False, empty="no consumer groups")


def _alerts(found: Stats, held: Held, max_queued: int | None, longest: float | None) -> Iterator[str]:
    for queue in found.queues:
        waiting = queue.queued + queue.retryable - queue.waiting
        if max_queued is not None and waiting > max_queued:
            jobs = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
            if queue.paused:
                do = f"it is paused: rowlock queues resume {queue.name}"
            elif queue.name in held:
                do = f"some wait for sources that are paused or failing ({', '.join(held[queue.name])})"
            else:
                do = "start more workers"
            yield f"alert: {jobs} in the queue {queue.name}, more than {max_queued}: {do}"
        running = queue.longest_running_seconds
        if longest is not None and running is not None and running > longest:
            yield (
                f"alert: a job of the queue {queue.name} has been running for {running:.0f} s, more than {longest:.0f}:"
                " its worker may hang"
            )


def _show(found: Stats, counts: Counts, lately: float) -> None:
    print(f"workers    {found.workers} alive, {counted(found.slots, 'slot')}")
    if counts.totals:
        ever = [f"{number} {what.removeprefix('attempt.')}" for what, number in sorted(counts.totals.items())]
        print(f"ever       {', '.join(ever)}")
    about = "" if found.finished_exact else " (at least)"
    for state, finished in sorted(found.finished.items()):
        print(f"{state:<10} {finished.count} in the last {lately / 60:.0f} minutes{about}{_mean(finished)}")
        if len(found.finished_tasks) > 1:
            for task, states in found.finished_tasks.items():
                if state in states:
                    print(f"           {states[state].count} of {task}{_mean(states[state])}")
    for one in found.set_aside:
        print(f"set aside  {one.id} since {words(one.since)}: {one.doing} failed: {cell(one.error)}")
    if not found.exact:
        print("Too many jobs to count them all: the numbers below are lower bounds.")
    print()
    rows = [{**record(queue), **_P95, **counts.times.get(queue.name, {})} for queue in found.queues]
    show(rows, [*queues.COLUMNS, *_P95], as_json=False, empty="no queues")


def _mean(finished: FinishedStats) -> str:
    return "" if finished.mean_run_seconds is None else f", {finished.mean_run_seconds:.2f} s each"
