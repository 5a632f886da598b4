"""`rowlock bench`: how fast Rowlock is on this machine, compared with bare SQL on the same disk or server."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli.kit.options import ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.kit.output import show_json, show_table
from rowlock.cli.kit.target import Target, run_async

MEASURES = {"single": "enqueue, one at a time", "bulk": "enqueue, in bulk", "drain": "claim, run, settle"}


def bench(
    config: ConfigOption = None,
    database: DatabaseOption = None,
    jobs: Annotated[int, typer.Option(min=100, max=1_000_000, help="How many empty jobs each round runs.")] = 20_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How many rounds; the table shows the median.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Measure jobs per second on this machine. Compares Rowlock with bare SQL, in a temporary database."""
    from rowlock.cli.run.bench_measures import measure

    found = run_async(measure(Target(None, config, database).open().database, jobs, rounds))
    if as_json:
        show_json(found)
        return
    rows = []
    for name, words in MEASURES.items():
        one = found[name]
        span = f"{min(one['ratios']):.2f} – {max(one['ratios']):.2f}"
        rows.append([words, f"{one['rowlock']:,.0f}", f"{one['raw']:,.0f}", f"{one['ratio']:.2f}", span])
    show_table(rows, ["jobs/s", "rowlock", "bare SQL", "ratio", "from – to"])
    p50, p99 = found["pickup_ms"].values()
    print(f"\nFrom enqueue to the handler's first line, idle: {p50:.1f} ms (p50), {p99:.1f} ms (p99)")
