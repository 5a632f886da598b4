"""`rowlock workers`: list workers, and ask one to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.options import Verbs
from rowlock.cli.kit.target import DataTarget

if TYPE_CHECKING:
    from rowlock.store.workers import StopHow

verbs = Verbs(name="workers", help="Look at workers, and ask them to end.")

COLUMNS = ("id", "alive", "queues", "pool_size", "running", "version", "started_at", "seen_at", "stop_requested")
WorkerId = Annotated[str, typer.Argument(metavar="ID", help="The worker's id, as `workers list` prints it")]


@verbs.verb("list")
def list_workers(target: DataTarget) -> None:
    """List workers, live ones first."""
    from rowlock.store import workers

    found = target.ask(workers.workers())
    target.show(found, COLUMNS, "no workers")


@verbs.verb("drain")
def drain_worker(worker: WorkerId, target: DataTarget) -> None:
    """Ask a worker to take no more jobs. It ends its process after the jobs that it runs."""
    _ask(target, worker, "drain", "claims no more jobs, and ends after the jobs that it runs")


@verbs.verb("stop")
def stop_worker(worker: WorkerId, target: DataTarget) -> None:
    """Ask a worker to end now. It gives back the jobs that it runs, which uses up no try."""
    _ask(target, worker, "stop", "gives back the jobs that it runs and ends")


def _ask(target: DataTarget, worker: str, how: StopHow, text: str) -> None:
    from rowlock.store import workers

    target.change(lambda app: app.perform(workers.ask_to_stop(worker, how)), f"workers.{how}", worker)
    target.say({"id": worker, "stop_requested": how}, f"{worker} {text}, from its next heartbeat on")
