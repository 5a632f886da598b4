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

States = Annotated[list[str] | None, typer.Option("--state", metavar="STATE", help="May be given many times, or a,b")]
Queue = Annotated[str | None, typer.Option("--queue", help="Only this queue")]
TaskName = Annotated[str | None, typer.Option("--task", help="Only this task")]
Owner = Annotated[str | None, typer.Option("--owner", help="Only this owner")]
Source = Annotated[str | None, typer.Option("--source", help="Only this source")]
Tag = Annotated[str | None, typer.Option("--tag", help="Only with this tag")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Created in the last 2h, or since an ISO time")
]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which jobs a verb is about."""

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
    """`dead,cancelled` as states."""
    names = [name.strip().lower() for text in given for name in text.split(",")]
    for name in names:
        if name not in list(State):
            raise InvalidArguments(f"--state {name!r}: expected one of {', '.join(State)}")
    return tuple(dict.fromkeys(State(name) for name in names))
