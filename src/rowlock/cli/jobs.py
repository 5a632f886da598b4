"""`rowlock jobs`: look at jobs. Changing them is in `repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import filters, repair
from rowlock.cli.database import ask
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import record, show, show_json, up_to
from rowlock.cli.target import Target

if TYPE_CHECKING:
    from rowlock.store.explain import Explanation
    from rowlock.store.retention import Pruned
    from rowlock.work.app import Rowlock

verbs = typer.Typer(help="Look at jobs, retry them, cancel them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "task", "queue", "state", "attempt", "progress", "created_at", "error_code")
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id")]


@verbs.command("list")
def list_jobs(
    state: filters.States = None,
    queue: filters.Queue = None,
    task: filters.TaskName = None,
    owner: filters.Owner = None,
    source: filters.Source = None,
    tag: filters.Tag = None,
    since: filters.Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many")] = 50,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    from rowlock.store import reads

    wanted = filters.job_filter(state, queue, task, owner, source, tag, since)
    found = ask(Target(app, config, database).open(), reads.list_jobs(wanted, limit + 1))
    show(up_to(limit, found), COLUMNS, as_json=as_json, empty="no jobs")


@verbs.command("show")
def show_job(
    job_id: JobId,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell a job's story: what it is, every attempt, its result, and why it is where it is."""
    from rowlock.cli import story

    told = run_async(story.read(Target(app, config, database).open(), job_id))
    if as_json:
        show_json(told.as_json())
    else:
        story.show(told)


@verbs.command("explain")
def explain_job(
    job_id: JobId,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job is not running, and what it waits for; of a batch's id, what the batch waits for."""
    from rowlock.cli import story

    why = run_async(_explain(Target(app, config, database).open(), job_id))
    if as_json:
        show_json(record(why))
    else:
        print(story.line(why.text))


@verbs.command("prune")
def prune_jobs(
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove finished jobs that are past their time now; workers do it every few minutes."""
    pruned = run_async(_prune(Target(app, config, database).open()))
    if as_json:
        show_json(record(pruned))
        return
    days = f" and {len(pruned.partitions)} whole days" if pruned.partitions else ""
    print(f"removed {pruned.jobs} jobs{days}, {pruned.attempts} attempts, {pruned.keys} keys")
    if pruned.busy:
        print("a day's partition is in use and was left for the next time")


verbs.command("retry")(repair.retry)
verbs.command("cancel")(repair.cancel)


async def _explain(app: Rowlock, job_id: str) -> Explanation:
    async with app:
        return await app.explain(job_id)


async def _prune(app: Rowlock) -> Pruned:
    from rowlock.store import retention

    async with app:
        return await retention.prune(await app.store(), app.keep)
