"""`rowlock jobs retry` and `rowlock jobs cancel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rowlock.cli.bulk import Request, carry_out
from rowlock.cli.filters import FilterOptions
from rowlock.cli.options import grouped_options
from rowlock.cli.target import DataTarget

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of the jobs", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print how many jobs would be changed")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]
Tries = Annotated[int, typer.Option("--tries", min=1, help="How many more tries each job gets")]


@dataclass(frozen=True, slots=True)
class Caution:
    """The options of a verb that may change many jobs."""

    dry_run: DryRun = False
    yes: Yes = False


@grouped_options
def retry(wanted: FilterOptions, caution: Caution, target: DataTarget, ids: Ids = None, tries: Tries = 1) -> None:
    """Put jobs back in their queues, by id or by a filter. Without --state, a filter means dead jobs."""
    carry_out(target, Request("retry", ids or [], wanted.read(), caution.dry_run, caution.yes, target.as_json, tries))


@grouped_options
def cancel(wanted: FilterOptions, caution: Caution, target: DataTarget, ids: Ids = None) -> None:
    """Cancel jobs, by id or by a filter. Waiting jobs end at once, running ones are asked to stop."""
    carry_out(target, Request("cancel", ids or [], wanted.read(), caution.dry_run, caution.yes, target.as_json))
