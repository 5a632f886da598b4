"""`rowlock workers`: list workers, and ask a worker to exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.options import Verbs
from rowlock.cli.kit.target import DataTarget

if TYPE_CHECKING:
    from rowlock.store.workers import StopHow

verbs = Verbs(name="workers", help="List workers, and ask them to exit.")

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
    """Ask a worker to exit after its running jobs. It claims no more jobs meanwhile."""
    _ask(target, worker, "drain", "will claim no more jobs, and exit after its running jobs")


@verbs.verb("stop")
def stop_worker(worker: WorkerId, target: DataTarget) -> None:
    """Ask a worker to exit now. It releases its running jobs, which doesn't count as a try."""
    _ask(target, worker, "stop", "will release its running jobs, and exit")


def _ask(target: DataTarget, worker: str, how: StopHow, text: str) -> None:
    from rowlock.store import workers

    target.change(lambda app: app.perform(workers.ask_to_stop(worker, how)), f"workers.{how}", worker)
    target.report({"id": worker, "stop_requested": how}, f"at its next heartbeat, {worker} {text}")
