"""`rowlock queues`: list, pause, resume and purge queues."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli.acting import actor
from rowlock.cli.bulk import Request, carry_out
from rowlock.cli.options import grouped_options
from rowlock.cli.output import printable, show, show_json
from rowlock.cli.repair import Caution
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments

verbs = typer.Typer(help="Look at queues, pause, resume and purge them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("name", "queued", "retryable", "running", "waiting", "oldest_ready_seconds", "paused")
QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name")]


@verbs.command("list")
@grouped_options
def list_queues(target: DataTarget) -> None:
    """List queues. Those that have unfinished jobs, are served by a worker, or are paused."""
    from rowlock.store import reads

    show(target.ask(reads.stats()).queues, COLUMNS, as_json=target.as_json, empty="no queues")


@verbs.command("pause")
@grouped_options
def pause_queue(name: QueueName, target: DataTarget) -> None:
    """Start no more jobs from a queue; running jobs go on."""
    from rowlock.store import audit, workers

    target.ask(audit.audited(workers.pause_queue(_checked(name)), actor(), "queues.pause", name))
    _say(target, name, True, f"{name} is paused")


@verbs.command("resume")
@grouped_options
def resume_queue(name: QueueName, target: DataTarget) -> None:
    """Start jobs of a paused queue again."""
    from rowlock.store import audit, workers

    was_paused = target.ask(audit.audited(workers.resume_queue(_checked(name)), actor(), "queues.resume", name))
    _say(target, name, False, f"{name} is resumed" if was_paused else f"{name} was not paused")


@verbs.command("purge")
@grouped_options
def purge_queue(name: QueueName, caution: Caution, target: DataTarget) -> None:
    """Cancel all jobs that wait in a queue; running ones go on. `jobs retry --state cancelled` can put them back."""
    from rowlock.store.bulk import WAITING
    from rowlock.store.reads import JobFilter

    wanted = JobFilter(queue=_checked(name), states=WAITING)
    carry_out(target, Request("cancel", (), wanted, caution.dry_run, caution.yes, target.as_json))


def _checked(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise InvalidArguments(f"{name!r} is not the name of a queue: it is empty or has control characters")
    return name


def _say(target: DataTarget, name: str, paused: bool, text: str) -> None:
    if target.as_json:
        show_json({"name": name, "paused": paused})
    else:
        print(printable(text))
