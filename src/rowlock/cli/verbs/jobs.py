"""`rowlock jobs`: list, show, explain, prune, retry and cancel jobs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.options import LimitOption, Verbs
from rowlock.cli.kit.output import record
from rowlock.cli.kit.target import DataTarget
from rowlock.cli.verbs.bulk import Caution, carry_out
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.read.filter import JobFilter

verbs = Verbs(name="jobs", help="List, explain, retry and cancel jobs.")
COLUMNS = ("id", "task", "queue", "state", "attempt", "progress", "created_at", "error_code")
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id")]
JobIds = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of the jobs", show_default=False)]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The filter: which jobs the command lists or changes."""

    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only jobs in these states: a,b or several --state")
    ] = None
    queue: Annotated[str | None, typer.Option(help="Only jobs in this queue")] = None
    task: Annotated[str | None, typer.Option(help="Only jobs of this task")] = None
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner")] = None
    source: Annotated[str | None, typer.Option(help="Only jobs of this source")] = None
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag")] = None
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only jobs created since: 2h (ago), or an ISO time")
    ] = None

    def read(self) -> JobFilter:
        """The options as the store's filter; raises InvalidArguments for an unknown state or an invalid time."""
        from rowlock.store.read.filter import BadFilter, read_filter

        try:
            return read_filter(asdict(self))
        except BadFilter as error:
            raise InvalidArguments(f"--{error}") from None


@verbs.verb("list", "rowlock jobs list --state dead,cancelled --queue mail --since 2h --json")
def list_jobs(wanted: FilterOptions, target: DataTarget, limit: LimitOption = 50) -> None:
    """List jobs, newest first."""
    from rowlock.store.read import search

    found = target.ask(search.list_jobs(wanted.read(), limit + 1))
    target.show(found, COLUMNS, "no jobs", limit)


@verbs.verb("show")
def show_job(job_id: JobId, target: DataTarget) -> None:
    """Show one job and its history. Options, every attempt, the result, and why it is in its state."""
    from rowlock.cli.inspect import job_story

    story = target.look(lambda app: job_story.read(app, job_id))
    target.report(story.as_json(), *story.lines())


@verbs.verb("explain")
def explain_job(job_id: JobId, target: DataTarget) -> None:
    """Explain why a job is not running and what it waits for. Also takes a batch's id."""
    from rowlock.cli.inspect import job_story

    why = target.look(lambda app: app.explain(job_id))
    target.report(record(why), job_story.line(why.text))


@verbs.verb("prune")
def prune_jobs(target: DataTarget) -> None:
    """Delete finished jobs whose retention time is over. Workers do this on their own every few minutes."""
    from rowlock.store.upkeep import retention

    async def prune(app: Rowlock) -> retention.Pruned:
        return await retention.prune(await app.store(), app.keep)

    pruned = target.run(prune)
    days = f" and {len(pruned.partitions)} whole days" if pruned.partitions else ""
    removed = f"removed {pruned.jobs} jobs{days}, {pruned.attempts} attempts, {pruned.keys} keys"
    left = ["one day's partition is in use and was kept; the next prune will remove it"] if pruned.busy else []
    target.report(record(pruned), removed, *left)


@verbs.verb("retry", "rowlock jobs retry ID", "rowlock jobs retry --task mail.send --dry-run")
def retry_jobs(
    wanted: FilterOptions,
    caution: Caution,
    target: DataTarget,
    ids: JobIds = None,
    tries: Annotated[int, typer.Option(min=1, help="How many more tries each job gets")] = 1,
) -> None:
    """Put jobs back in their queues, by id or by a filter. Without --state, a filter means dead jobs."""
    carry_out(target, "retry", wanted.read(), caution, ids or (), tries)


@verbs.verb("cancel", "rowlock jobs cancel --queue mail --state queued --dry-run")
def cancel_jobs(wanted: FilterOptions, caution: Caution, target: DataTarget, ids: JobIds = None) -> None:
    """Cancel jobs, by id or by a filter. Waiting jobs end at once, running ones are asked to stop."""
    carry_out(target, "cancel", wanted.read(), caution, ids or ())
