"""`rowlock jobs retry` and `rowlock jobs cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import filters
from rowlock.cli.bulk import Request, Verb, carry_out
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.target import Target
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Jobs", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="How many more tries each job gets")]

# A cancelled job was cancelled by somebody: a filter brings it back only when it says so.
RETRY = Verb("retry", (State.DEAD, State.CANCELLED), (State.DEAD,), "its key is held by a newer job")
WAITING_OR_RUNNING = (State.QUEUED, State.RETRYABLE, State.RUNNING)
CANCEL = Verb("cancel", WAITING_OR_RUNNING, WAITING_OR_RUNNING, "it was put back just now; try again")


def retry(
    ids: Ids = None,
    state: filters.States = None,
    queue: filters.Queue = None,
    task: filters.TaskName = None,
    owner: filters.Owner = None,
    source: filters.Source = None,
    tag: filters.Tag = None,
    since: filters.Since = None,
    tries: Tries = 1,
    dry_run: DryRun = False,
    yes: Yes = False,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put jobs back in their queues: those named, or all dead ones (or --state) that fit the filter."""
    from rowlock.store import jobs

    async def change(opened: Rowlock, batch: Sequence[str]) -> dict[str, str]:
        revived = await (await opened.store()).run(jobs.retry(batch, tries))
        return dict.fromkeys(revived, "retried")

    wanted = filters.job_filter(state, queue, task, owner, source, tag, since)
    carry_out(Target(app, config, database), Request(RETRY, change, ids or [], wanted, dry_run, yes, as_json))


def cancel(
    ids: Ids = None,
    state: filters.States = None,
    queue: filters.Queue = None,
    task: filters.TaskName = None,
    owner: filters.Owner = None,
    source: filters.Source = None,
    tag: filters.Tag = None,
    since: filters.Since = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs, those named or all that fit the filter: waiting ones at once, running ones are asked to stop."""
    from rowlock.store import jobs

    async def change(opened: Rowlock, batch: Sequence[str]) -> dict[str, str]:
        answers = await (await opened.store()).run(jobs.cancel(batch, opened.keep))
        return {job_id: answer for job_id, answer in answers.items() if answer in ("cancelled", "cancelling")}

    wanted = filters.job_filter(state, queue, task, owner, source, tag, since)
    carry_out(Target(app, config, database), Request(CANCEL, change, ids or [], wanted, dry_run, yes, as_json))
