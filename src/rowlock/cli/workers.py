"""`rowlock workers`: list workers, and ask one to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.acting import actor
from rowlock.cli.options import grouped_options
from rowlock.cli.output import printable, show, show_json
from rowlock.cli.target import DataTarget

if TYPE_CHECKING:
    from rowlock.store.workers import StopHow

verbs = typer.Typer(help="Look at workers, and ask them to end.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "alive", "queues", "pool_size", "running", "version", "started_at", "seen_at", "stop_requested")
WorkerId = Annotated[str, typer.Argument(metavar="ID", help="The worker's id, as `workers list` prints it")]


@verbs.command("list")
@grouped_options
def list_workers(target: DataTarget) -> None:
    """List workers, live ones first."""
    from rowlock.store import workers

    found = target.ask(workers.workers())
    show(found, COLUMNS, as_json=target.as_json, empty="no workers")


@verbs.command("drain")
@grouped_options
def drain_worker(worker: WorkerId, target: DataTarget) -> None:
    """Ask a worker to take no more jobs. It ends its process after the jobs that it runs."""
    _ask(target, worker, "drain", "takes no more jobs and ends after those that it runs")


@verbs.command("stop")
@grouped_options
def stop_worker(worker: WorkerId, target: DataTarget) -> None:
    """Ask a worker to end now. It gives back the jobs that it runs, which uses up no try."""
    _ask(target, worker, "stop", "gives back the jobs that it runs and ends")


def _ask(target: DataTarget, worker: str, how: StopHow, text: str) -> None:
    from rowlock.store import audit, workers

    target.ask(audit.audited(workers.ask_to_stop(worker, how), actor(), f"workers.{how}", worker))
    if target.as_json:
        show_json({"id": worker, "stop_requested": how})
    else:
        print(printable(f"{worker} {text}, from its next heartbeat on"))
