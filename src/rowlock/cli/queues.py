"""`rowlock queues`: how they stand; pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli.database import ask
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import printable, show, show_json
from rowlock.cli.target import Target
from rowlock.core.errors import InvalidArguments

verbs = typer.Typer(help="Look at queues, pause and resume them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("name", "queued", "retryable", "running", "waiting", "oldest_ready_seconds", "paused")
QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue")]


@verbs.command("list")
def list_queues(
    app: AppOption = None, config: ConfigOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """List the queues that have jobs, workers or a pause."""
    from rowlock.store import reads

    found = ask(Target(app, config, database).open(), reads.stats())
    show(found.queues, COLUMNS, as_json=as_json, empty="no queues")


@verbs.command("pause")
def pause_queue(
    name: QueueName,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start no more jobs from a queue; what runs goes on."""
    from rowlock.store import workers

    ask(Target(app, config, database).open(), workers.pause_queue(_checked(name)))
    _say(name, True, f"{name} is paused", as_json)


@verbs.command("resume")
def resume_queue(
    name: QueueName,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused queue go on."""
    from rowlock.store import workers

    was_paused = ask(Target(app, config, database).open(), workers.resume_queue(_checked(name)))
    _say(name, False, f"{name} goes on" if was_paused else f"{name} was not paused", as_json)


def _checked(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise InvalidArguments(f"{name!r} is no name of a queue")
    return name


def _say(name: str, paused: bool, text: str, as_json: bool) -> None:
    if as_json:
        show_json({"name": name, "paused": paused})
    else:
        print(printable(text))
