"""`rowlock workers`: who is at work."""

from __future__ import annotations

import typer

from rowlock.cli.database import ask
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import show
from rowlock.cli.target import Target

verbs = typer.Typer(help="Look at workers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "alive", "queues", "pool_size", "running", "version", "started_at", "seen_at")


@verbs.callback()
def group() -> None:
    """Look at workers."""  # with one verb only, the verb's name would not be needed


@verbs.command("list")
def list_workers(
    app: AppOption = None, config: ConfigOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """List workers, living ones first."""
    from rowlock.store import workers

    found = ask(Target(app, config, database).open(), workers.workers())
    show(found, COLUMNS, as_json=as_json, empty="no workers")
