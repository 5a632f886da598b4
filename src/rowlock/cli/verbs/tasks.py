"""New jobs: the options that `enqueue` and `schedules add` share, and the task, by its name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.kit.target import Target
    from rowlock.client.tasks.task import Task

TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task's name")]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Arguments of the task, as JSON or text", show_default=False),
]
DefaultsOption = Annotated[
    bool,
    typer.Option("--defaults", help="Without --app: allow a task that no worker has registered, with default options"),
]


@dataclasses.dataclass(frozen=True, slots=True)
class NewJobOptions:
    """Options of the new job, or of each job of the schedule."""

    queue: Annotated[str | None, typer.Option(help="Queue [default: that of the task]")] = None
    priority: Annotated[int | None, typer.Option(help="-100 (starts first) to 100 (starts last)")] = None
    owner: Annotated[str | None, typer.Option(help="Who may see the job through the job API")] = None
    source: Annotated[str | None, typer.Option(help="The outside service that the job calls, e.g. api:ebay")] = None
    max_attempts: Annotated[int | None, typer.Option(help="How many tries may fail before the job is dead")] = None

    def given(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


async def task_named(
    app: Rowlock, target: Target, name: str, options: NewJobOptions, *, defaults: bool
) -> Task[..., Any, Any]:
    """The task of that name. Without the app's code, the task takes any arguments and has the options that its worker
    stored; if no worker did, `defaults` allows default options instead of an error."""
    if target.code:
        return app.get_task(name)
    from rowlock.client.tasks.stored_tasks import stored_task

    how = "; name your app with --app, or give --defaults to use default options"
    return await stored_task(app, name, options.source, defaults=defaults, how=how)
