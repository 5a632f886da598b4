"""`rowlock workers`: list workers."""

from __future__ import annotations

import typer

from rowlock.cli.options import grouped_options
from rowlock.cli.output import show
from rowlock.cli.target import DataTarget

verbs = typer.Typer(help="Look at workers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "alive", "queues", "pool_size", "running", "version", "started_at", "seen_at")


@verbs.callback()
def group() -> None:
    """Look at workers."""  # without a callback, Typer would make the only verb the group itself


@verbs.command("list")
@grouped_options
def list_workers(target: DataTarget) -> None:
    """List workers, live ones first."""
    from rowlock.store import workers

    found = target.ask(workers.workers())
    show(found, COLUMNS, as_json=target.as_json, empty="no workers")
