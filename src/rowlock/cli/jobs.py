"""`rowlock jobs`: list, show, explain and prune jobs. `retry` and `cancel` are in repair.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import repair
from rowlock.cli.filters import FilterOptions
from rowlock.cli.options import LimitOption, examples, grouped_options
from rowlock.cli.output import record, show, show_json, up_to
from rowlock.cli.target import DataTarget

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.retention import Pruned

verbs = typer.Typer(help="Look at jobs, retry them, cancel them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "task", "queue", "state", "attempt", "progress", "created_at", "error_code")
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id")]


@verbs.command("list", epilog=examples("rowlock jobs list --state dead,cancelled --queue mail --since 2h --json"))
@grouped_options
def list_jobs(wanted: FilterOptions, target: DataTarget, limit: LimitOption = 50) -> None:
    """List jobs, newest first."""
    from rowlock.store import reads

    found = target.ask(reads.list_jobs(wanted.read(), limit + 1))
    show(up_to(limit, found), COLUMNS, as_json=target.as_json, empty="no jobs")


@verbs.command("show")
@grouped_options
def show_job(job_id: JobId, target: DataTarget) -> None:
    """Show one job and its history. Options, every attempt, the result, and why it is in its state."""
    from rowlock.cli import story

    told = target.run(lambda app: story.read(app, job_id))
    if target.as_json:
        show_json(told.as_json())
    else:
        story.show(told)


@verbs.command("explain")
@grouped_options
def explain_job(job_id: JobId, target: DataTarget) -> None:
    """Say why a job is not running and what it waits for. With a batch's id: what the batch waits for."""
    from rowlock.cli import story

    why = target.run(lambda app: app.explain(job_id))
    if target.as_json:
        show_json(record(why))
    else:
        print(story.line(why.text))


@verbs.command("prune")
@grouped_options
def prune_jobs(target: DataTarget) -> None:
    """Delete finished jobs whose retention time is over. Workers do this by themselves every few minutes."""
    pruned = target.run(_prune)
    if target.as_json:
        show_json(record(pruned))
        return
    days = f" and {len(pruned.partitions)} whole days" if pruned.partitions else ""
    print(f"removed {pruned.jobs} jobs{days}, {pruned.attempts} attempts, {pruned.keys} keys")
    if pruned.busy:
        print("the partition of one day is in use; the next prune removes it")


async def _prune(app: Rowlock) -> Pruned:
    from rowlock.store import retention

    return await retention.prune(await app.store(), app.keep)


verbs.command("retry", epilog=examples("rowlock jobs retry ID", "rowlock jobs retry --task mail.send --dry-run"))(
    repair.retry
)
verbs.command("cancel", epilog=examples("rowlock jobs cancel --queue mail --state queued --dry-run"))(repair.cancel)
