"""The filter options that `jobs list`, `jobs retry` and `jobs cancel` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import times
from rowlock.core.errors import InvalidArguments
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.store.reads import JobFilter

States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help="Only jobs in these states: a,b or several --state"),
]
Queue = Annotated[str | None, typer.Option("--queue", help="Only jobs in this queue")]
TaskName = Annotated[str | None, typer.Option("--task", help="Only jobs of this task")]
Owner = Annotated[str | None, typer.Option("--owner", help="Only jobs of this owner")]
Source = Annotated[str | None, typer.Option("--source", help="Only jobs of this source")]
Tag = Annotated[str | None, typer.Option("--tag", help="Only jobs with this tag")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only jobs created since: 2h (ago), or an ISO time")
]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The filter: which jobs the command lists or changes."""

    state: States = None
    queue: Queue = None
    task: TaskName = None
    owner: Owner = None
    source: Source = None
    tag: Tag = None
    since: Since = None

    def read(self) -> JobFilter:
        """The options as the store's filter; raises InvalidArguments for a state or a time that does not exist."""
        from rowlock.store.reads import JobFilter

        return JobFilter(
            states=read_states(self.state or []),
            queue=self.queue,
            task=self.task,
            owner=self.owner,
            source=self.source,
            tag=self.tag,
            since=None if self.since is None else times.since(self.since, "--since"),
        )


def read_states(given: Sequence[str]) -> tuple[State, ...]:
    """Parse the values of `--state`, such as `dead,cancelled`."""
    names = [name.strip().lower() for text in given for name in text.split(",")]
    for name in names:
        if name not in list(State):
            raise InvalidArguments(f"--state {name!r}: expected one of {', '.join(State)}")
    return tuple(dict.fromkeys(State(name) for name in names))
