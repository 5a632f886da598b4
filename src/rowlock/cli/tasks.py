"""Find a task by its name: in the app's code, or as its worker has stored it in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.target import Target
    from rowlock.client.tasks import Task

DefaultsOption = Annotated[
    bool,
    typer.Option("--defaults", help="Without --app: allow a task that no worker has registered, with default options"),
]


async def task_named(
    app: Rowlock, target: Target, name: str, *, source: str | None, defaults: bool
) -> Task[..., Any, Any]:
    """The task of that name. Without the app's code, the task takes any arguments and has the options that its worker
    stored; if no worker did, `defaults` allows default options instead of an error."""
    if target.code:
        return app.get_task(name)
    from rowlock.client.stored_tasks import stored_task

    how = "; name your app with --app, or give --defaults to use default options"
    return await stored_task(app, name, source, defaults=defaults, how=how)
