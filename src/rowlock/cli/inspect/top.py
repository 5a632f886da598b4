"""`rowlock top`: queues, sources and workers, live on a terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.inspect import stats
from rowlock.cli.kit.output import on_terminal, record, show_json, show_table
from rowlock.cli.kit.target import DataTarget
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.health.conditions import Condition
    from rowlock.store.read.overview import Overview


def top(
    target: DataTarget,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot as plain text and exit")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two refreshes")] = 2.0,
) -> None:
    """Show queues, sources and workers live. Quit with q or Ctrl-C; without a terminal, use --once or --json."""
    from rowlock.cli.inspect import top_screen

    if target.as_json:
        found, wrong = target.look(read)
        show_json({**record(found), "problems": stats.data(wrong)})
    elif once:
        found, wrong = target.look(read)
        print(top_screen.header(found, None), *stats.lines(wrong), sep="\n")
        for columns, rows in top_screen.tables(found):
            if rows:
                print()
                show_table(rows, columns)
    elif on_terminal():
        with suppress(KeyboardInterrupt):
            target.look(lambda app: top_screen.show(lambda: read(app), every))
    else:
        raise InvalidArguments("rowlock top needs a terminal; use --once for text or --json for data")


async def read(app: Rowlock) -> tuple[Overview, list[Condition]]:
    """One snapshot: an overview, and what is wrong."""
    from rowlock.health.conditions import conditions
    from rowlock.store.read.overview import overview
    from rowlock.store.read.snapshot import snapshot

    store = await app.store()
    now = await store.run(snapshot())
    return await store.run(overview(now)), conditions(now)
