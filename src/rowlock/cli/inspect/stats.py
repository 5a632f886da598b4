"""`rowlock stats`: workers, queues and finished jobs at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import FAILED, complain
from rowlock.cli.kit.options import read_duration
from rowlock.cli.kit.output import counted, printable, record, show, show_json
from rowlock.cli.kit.target import DataTarget
from rowlock.cli.verbs import queues
from rowlock.core.errors import ConfigError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.bridge.stats import BridgeNumbers
    from rowlock.health.conditions import Condition
    from rowlock.store.engine.store import Store
    from rowlock.store.read.counts import FinishedStats, Stats
    from rowlock.store.read.snapshot import Snapshot

SHOWN = 20
TIMES_SECONDS = 3600.0
Times = dict[str, dict[str, float | None]]
_P95 = {"wait_p95": None, "run_p95": None}


def data(problems: Sequence[Condition]) -> list[dict[str, str]]:
    """Problems as JSON."""
    return [{"kind": one.kind, "name": one.name, "text": one.text, "do": one.do} for one in problems]


def lines(problems: Sequence[Condition], most: int = SHOWN) -> list[str]:
    """Problems, one line each. If there are more than `most`, the last line counts the rest."""
    shown = len(problems) if len(problems) <= most else most - 1
    more = [f"! and {len(problems) - shown} more: rowlock doctor"] if len(problems) > shown else []
    return [*(f"! {printable(one.text)}" for one in problems[:shown]), *more]


def stats(
    target: DataTarget,
    max_queued: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Exit with code 1 if more than N jobs wait in a queue")
    ] = None,
    max_running: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Exit with code 1 if a job has been running longer, e.g. 5m")
    ] = None,
) -> None:
    """Show workers, queues and recently finished jobs. Exit 1 if a given limit is exceeded."""
    from rowlock.core.config.alert_rules import AlertRule
    from rowlock.health.conditions import conditions, see
    from rowlock.store.read.counts import LATELY_SECONDS, read_stats
    from rowlock.store.read.snapshot import snapshot

    longest = read_duration(max_running, "--max-running")

    async def read(app: Rowlock) -> tuple[Snapshot, Stats, dict[str, int], Times, BridgeNumbers | None]:
        store = await app.store()
        now = await store.run(snapshot())
        return now, await store.run(read_stats(now)), *await _counts(store), await _bridge(app)

    now, found, totals, times, bridge = target.look(read)
    problems = conditions(now)
    limits = [("queued", max_queued), ("running_seconds", longest)]
    rules = [AlertRule(when, when, above) for when, above in limits if above is not None]
    alerts = [f"alert: {one.text}" for rule in rules for one in see(rule, now).values()]
    if target.as_json:
        redis = {} if bridge is None else {"redis": record(bridge)}
        wrong = {"unknown_tasks": now.unknown, "problems": data(problems)}
        show_json({**record(found), "totals": totals, "times": times, **wrong, "alerts": alerts, **redis})
    else:
        _show(found, totals, times, LATELY_SECONDS)
        if found_wrong := lines(problems):
            print("", *found_wrong, sep="\n")
        if bridge is not None:
            _show_bridge(bridge)
        for alert in alerts:
            complain(alert)
    if alerts:
        raise typer.Exit(FAILED)


async def _counts(store: Store) -> tuple[dict[str, int], Times]:
    """All-time totals: jobs by final state, and attempts by `attempt.` plus outcome. And for the last hour's successes,
    by queue, how long they ran and waited in seconds: run_p50, run_p95, wait_p50, wait_p95."""
    from rowlock.store.read import counters

    totals = Counter[str]()
    for total in await store.run(counters.totals()):
        totals[total.what] += total.count
    since = datetime.now(UTC) - timedelta(seconds=TIMES_SECONDS)
    times = {
        queue: {
            f"{name}_p{part}": counters.percentile(buckets, part / 100)
            for name, buckets in (("run", run), ("wait", wait))
            for part in (50, 95)
        }
        for queue, (run, wait) in (await store.run(counters.spread(since))).items()
    }
    return totals, times


async def _bridge(app: Rowlock) -> BridgeNumbers | None:
    """The numbers of the Redis streams. None if Redis isn't configured or, after a complaint on stderr, unreachable."""
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


def _show(found: Stats, totals: dict[str, int], times: Times, lately: float) -> None:
    print(f"workers    {found.workers} alive, {counted(found.slots, 'slot')}")
    if totals:
        ever = [f"{number} {what.removeprefix('attempt.')}" for what, number in sorted(totals.items())]
        print(f"ever       {', '.join(ever)}")
    about = "" if found.finished_exact else " (at least)"
    for state, finished in sorted(found.finished.items()):
        print(f"{state:<10} {finished.count} in the last {lately / 60:.0f} minutes{about}{_mean(finished)}")
        if len(found.finished_tasks) > 1:
            for task, states in found.finished_tasks.items():
                if state in states:
                    print(f"           {states[state].count} of {task}{_mean(states[state])}")
    if not found.exact:
        print("Too many jobs to count: the numbers below are lower bounds.")
    print()
    rows = [{**record(queue), **_P95, **times.get(queue.name, {})} for queue in found.queues]
    show(rows, [*queues.COLUMNS, *_P95], as_json=False, empty="no queues")


def _mean(finished: FinishedStats) -> str:
    return "" if finished.mean_run_seconds is None else f", {finished.mean_run_seconds:.2f} s each"
