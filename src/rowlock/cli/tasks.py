"""Find a task by its name: in the app's code, or as its worker has stored it in the database."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.target import Target
    from rowlock.client.tasks import Task
    from rowlock.core.options import TaskOptions

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
    from rowlock.client.tasks import Task
    from rowlock.core.options import name as checked

    async def elsewhere(params: dict[str, Any]) -> None:
        """Stands for the task's code, which this process does not have."""

    wanted = checked(name, "a task's name")
    return Task(app.registry, wanted, elsewhere, await _stored_options(app, wanted, source, defaults), raw=True)


async def _stored_options(app: Rowlock, name: str, source: str | None, defaults: bool) -> TaskOptions:
    from rowlock.core.options import TaskOptions, from_json
    from rowlock.store import tasks

    found = await app.perform(tasks.find(name))
    if found is None:
        if defaults:
            return TaskOptions()
        known = await app.perform(tasks.names())
        near = difflib.get_close_matches(name, known, 1)
        raise InvalidArguments(
            f"no worker has registered a task named {name!r} in this database"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + "; name your app with --app, or give --defaults to use default options"
        )
    if found.source_derived and source is None:
        raise InvalidArguments(
            f"task {name!r} derives its source from its arguments, which needs the task's code: give --app, or name the"
            " source with --source"
        )
    return TaskOptions(**from_json(found.options))
