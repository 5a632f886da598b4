"""The tasks of one app by name: its decorated functions, and the @handler classes of the process."""

from __future__ import annotations

import difflib
import inspect
import logging
from typing import TYPE_CHECKING, Any

from pydantic.errors import PydanticInvalidForJsonSchema

from rowlock.client.context import Context
from rowlock.client.tasks import handlers
from rowlock.client.tasks.follow_ups import packed
from rowlock.client.tasks.task import Task
from rowlock.core.errors import InvalidArguments, TaskNotFound
from rowlock.core.option_checks import task_name
from rowlock.core.options import Packed, task_options, to_json
from rowlock.store.jobs.tasks import StoredTask

if TYPE_CHECKING:
    from rowlock.client.client import Client

log = logging.getLogger("rowlock.tasks")


class Registry:
    """The tasks of one app, and the @handler classes of the process."""

    def __init__(self, app: Client) -> None:
        self.app = app
        self._tasks: dict[str, Task[..., Any, Any]] = {}

    def add(self, task: Task[..., Any, Any]) -> None:
        """Register a task. Raises InvalidArguments if another function has that name already."""
        known = self._tasks.get(task.name)
        if known is not None and not handlers.reloaded(known.function, task.function):
            raise InvalidArguments(f"two tasks are named {task.name!r}: {known.function!r} and {task.function!r}")
        self._tasks[task.name] = task

    def get(self, wanted: str) -> Task[..., Any, Any]:
        """The task of that name. Raises TaskNotFound, which suggests the most similar name."""
        task = self._tasks.get(wanted) or self.all().get(wanted)
        if task is None:
            near = difflib.get_close_matches(wanted, self.all(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(self.all())) or 'none'}"
            raise TaskNotFound(f"no task named {wanted!r}{hint}")
        return task

    def all(self) -> dict[str, Task[..., Any, Any]]:
        """Every task, by name."""
        for wanted, options in handlers.registered().items():
            if wanted not in self._tasks:
                self._tasks[wanted] = self._of_handler(wanted, options)
        return self._tasks

    def _of_handler(self, wanted: str, options: dict[str, Any]) -> Task[..., Any, Any]:
        async def execute(ctx: Context, params: dict[str, Any]) -> Any:
            instance = handlers.get_handler(wanted)
            instance._context = ctx
            return await instance.execute(params)

        checked = task_name(wanted, "a handler's name")
        return Task(self.app, self.packed, checked, execute, task_options(**options), raw=True)

    def here(self) -> dict[str, Task[..., Any, Any]]:
        """The tasks that a worker of this app runs, by name."""
        return {name: task for name, task in self.all().items() if task.options.runs_on is None}

    def elsewhere(self) -> dict[str, Task[..., Any, Any]]:
        """The tasks that a bridge publishes for workers of other programs, by name."""
        return {name: task for name, task in self.all().items() if task.options.runs_on is not None}

    def packed(self, task: Task[..., Any, Any] | str, argument: str) -> str:
        """A follow-up as text for the job's row: it is enqueued later without this app's code."""
        return task if isinstance(task, Packed) else packed(self.all().get, task, argument)

    def stored(self) -> list[StoredTask]:
        """The options of every task, to be stored for programs that enqueue without this app's code. Tasks with invalid
        follow-ups are left out, so that such a program cannot enqueue them."""
        found = []
        for task in self.all().values():
            try:
                derived = callable(task.options.source)
                found.append(StoredTask(task.name, to_json(task.shared()), derived, *_described(task)))
            except InvalidArguments as error:
                log.warning("the options of task %s are not written to the database: %s", task.name, error)
        return found


def _described(task: Task[..., Any, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """JSON Schema of a task's arguments if they have one, and the first line of its docstring."""
    lines = (inspect.cleandoc(task.function.__doc__ or "")).splitlines()
    try:
        schema = task.arguments.schema()
    except PydanticInvalidForJsonSchema:
        schema = None
    return schema, lines[0][:200].replace("\0", "") if lines else None
