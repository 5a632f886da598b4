"""The filter options that `jobs list`, `jobs retry` and `jobs cancel` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit import times
from rowlock.core.errors import InvalidArguments
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.store.read.reads import JobFilter


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
        from rowlock.store.read.reads import JobFilter

        given = asdict(self)
        states, since = read_states(given.pop("state") or []), given.pop("since")
        return JobFilter(states, since=None if since is None else times.since(since, "--since"), **given)


def read_states(given: Sequence[str]) -> tuple[State, ...]:
    """Parse the values of `--state`, such as `dead,cancelled`."""
    names = [name.strip().lower() for text in given for name in text.split(",")]
    for name in names:
        if name not in list(State):
            raise InvalidArguments(f"--state {name!r}: expected one of {', '.join(State)}")
    return tuple(dict.fromkeys(State(name) for name in names))
