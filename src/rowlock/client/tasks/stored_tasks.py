"""A task whose code this process does not have, made from what its worker has stored in the database."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from rowlock.client.tasks.task import Task
from rowlock.core.errors import InvalidArguments
from rowlock.core.option_checks import task_name as checked
from rowlock.core.options import TaskOptions, from_json
from rowlock.store.jobs import tasks

if TYPE_CHECKING:
    from rowlock.client.client import Client


async def stored_task(
    client: Client, name: str, source: str | None, *, defaults: bool = False, how: str = ""
) -> Task[..., Any, Any]:
    """The task of that name. It takes any arguments and has the options that its worker stored; if no worker did,
    `defaults` allows default options instead of an error. `how` ends the error message: what the user can do."""
    wanted = checked(name, "a task's name")
    found = await client.perform(tasks.find(wanted))
    if found is None and not defaults:
        known = await client.perform(tasks.names())
        near = difflib.get_close_matches(name, known, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidArguments(f"no worker has registered a task named {name!r} in this database{meant}{how}")
    if found is not None and found.source_derived and source is None:
        raise InvalidArguments(
            f"task {name!r} derives its source from its arguments, which needs the task's code: give --app, or name the"
            " source with --source"
        )

    async def elsewhere(params: dict[str, Any]) -> None:
        """Stands for the task's code, which this process does not have."""

    options = TaskOptions() if found is None else TaskOptions(**from_json(found.options))
    return Task(client, client.registry.packed, wanted, elsewhere, options, raw=True)


async def any_task(client: Client, name: str, source: str | None, arguments: dict[str, Any]) -> Task[..., Any, Any]:
    """The task of that name: from this process' code, which checks arguments by itself, else as it is stored; then
    the names of the arguments are checked here, and their values when the job runs."""
    if name in client.registry.all():
        return client.get_task(name)
    task = await stored_task(client, name, source)
    stored = await client.perform(tasks.find(name))
    schema = (stored.arguments if stored is not None else None) or {}
    if missing := [one for one in schema.get("required", []) if one not in arguments]:
        raise InvalidArguments(f"task {name!r}: {missing[0]} is missing")
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False and (strange := [one for one in arguments if one not in known]):
        raise InvalidArguments(f"task {name!r}: {strange[0]} is not one of its arguments")
    return task
