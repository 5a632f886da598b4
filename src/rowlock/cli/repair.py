"""`rowlock jobs retry` and `rowlock jobs cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.bulk import Request, Verb, carry_out
from rowlock.cli.filters import FilterOptions
from rowlock.cli.options import grouped_options
from rowlock.cli.target import DataTarget
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.app import Rowlock

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of the jobs", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print how many jobs would be changed")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="How many more tries each job gets")]

# A job was cancelled on purpose, so a filter retries cancelled jobs only with --state cancelled.
RETRY = Verb("retry", (State.DEAD, State.CANCELLED), (State.DEAD,), "its key is held by a newer job")
WAITING_OR_RUNNING = (State.QUEUED, State.RETRYABLE, State.RUNNING)
CANCEL = Verb("cancel", WAITING_OR_RUNNING, WAITING_OR_RUNNING, "it was put back in its queue just now; try again")


@dataclass(frozen=True, slots=True)
class Caution:
    """The options of a verb that may change many jobs."""

    dry_run: DryRun = False
    yes: Yes = False


@grouped_options
def retry(wanted: FilterOptions, caution: Caution, target: DataTarget, ids: Ids = None, tries: Tries = 1) -> None:
    """Put jobs back in their queues: those with the given ids, or all dead ones (or --state) that match the filter."""
    from rowlock.store import jobs

    async def change(app: Rowlock, batch: Sequence[str]) -> dict[str, str]:
        revived = await (await app.store()).run(jobs.retry(batch, tries))
        return dict.fromkeys(revived, "retried")

    carry_out(target, Request(RETRY, change, ids or [], wanted.read(), caution.dry_run, caution.yes, target.as_json))


@grouped_options
def cancel(wanted: FilterOptions, caution: Caution, target: DataTarget, ids: Ids = None) -> None:
    """Cancel jobs, by id or by a filter: waiting jobs end at once, running ones are asked to stop."""
    from rowlock.store import jobs

    async def change(app: Rowlock, batch: Sequence[str]) -> dict[str, str]:
        answers = await (await app.store()).run(jobs.cancel(batch, app.keep))
        return {job_id: answer for job_id, answer in answers.items() if answer in ("cancelled", "cancelling")}

    carry_out(target, Request(CANCEL, change, ids or [], wanted.read(), caution.dry_run, caution.yes, target.as_json))
