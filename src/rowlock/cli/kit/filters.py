"""The filter options that `jobs list`, `jobs retry` and `jobs cancel` share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.store.read.filter import JobFilter


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
        """The options as the store's filter; raises InvalidArguments for a state or a time that does not exist."""
        from rowlock.store.read.filter import BadFilter, read_filter

        try:
            return read_filter(asdict(self))
        except BadFilter as error:
            raise InvalidArguments(f"--{error}") from None
