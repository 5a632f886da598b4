"""The task that a command names: from the app's code, or as its worker registered it in the database."""

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
    typer.Option("--defaults", help="Without --app: use default options for a task that no worker has registered"),
]


async def task_named(
    app: Rowlock, target: Target, name: str, *, source: str | None, defaults: bool
) -> Task[..., Any, Any]:
    """The task of that name. Without the app's code it takes any arguments, and has the options that its worker
    registered; `defaults` lets it have the default options if no worker did."""
    if target.code:
        return app.get_task(name)
    from rowlock.client.tasks import Task
    from rowlock.core.options import name as checked

    async def elsewhere(params: dict[str, Any]) -> None:
        """Its code is not here."""

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
            + "; name your code with --app, or give --defaults to go on with the default options"
        )
    if found.source_derived and source is None:
        raise InvalidArguments(
            f"task {name!r} derives its source from its arguments, which needs its code: name it with --app, or give"
            " --source"
        )
    return TaskOptions(**from_json(found.options))
