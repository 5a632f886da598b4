"""`rowlock bench`: how fast Rowlock is on this machine, compared with bare SQL on the same database."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rowlock.cli.kit.loop import run_async
from rowlock.cli.kit.options import ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.kit.output import show_json, show_table
from rowlock.cli.kit.target import Target

MEASURES = {"single": "enqueue, one at a time", "bulk": "enqueue, in bulk", "drain": "claim, run, settle"}


def bench(
    config: ConfigOption = None,
    database: DatabaseOption = None,
    jobs: Annotated[int, typer.Option(min=100, max=1_000_000, help="How many empty jobs each round runs.")] = 20_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How many rounds; the table shows the median.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Measure jobs per second here. Also the least SQL that a queue needs; uses a temporary database of its own."""
    from rowlock.cli.run.bench.measure import measure

    url = Target(None, config, database).open().database
    found = run_async(measure(url, MEASURES, jobs, rounds))
    if as_json:
        show_json(found)
        return
    show_table([_row(name, found[name]) for name in MEASURES], ["jobs/s", "rowlock", "bare SQL", "ratio", "from – to"])
    pickup = found["pickup_ms"]
    print(
        f"\nFrom enqueue to the handler's first line, idle: {pickup['p50']:.1f} ms (p50), {pickup['p99']:.1f} ms (p99)"
    )


def _row(name: str, found: dict[str, Any]) -> list[str]:
    low, high = min(found["ratios"]), max(found["ratios"])
    rates = (f"{found[who]:,.0f}" for who in ("rowlock", "raw"))
    return [MEASURES[name], *rates, f"{found['ratio']:.2f}", f"{low:.2f} – {high:.2f}"]
