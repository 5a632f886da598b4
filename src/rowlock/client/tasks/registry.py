"""The tasks of one app by name: its decorated functions, the @handler classes of the process, and their follow-ups."""

from __future__ import annotations

import difflib
import inspect
import json
import logging
from typing import TYPE_CHECKING, Any

from pydantic.errors import PydanticInvalidForJsonSchema

from rowlock.client.context import Context
from rowlock.client.tasks import handlers
from rowlock.client.tasks.task import Task
from rowlock.core.errors import InvalidArguments, TaskNotFound
from rowlock.core.option_checks import task_name
from rowlock.core.options import (
    FOLLOW_UPS,
    NOT_OF_FOLLOW_UPS,
    OPTIONS,
    JobOptions,
    Packed,
    task_options,
    to_json,
)
from rowlock.store.jobs.tasks import StoredTask

if TYPE_CHECKING:
    from rowlock.client.client import Client

log = logging.getLogger("rowlock.tasks")
MAX_FOLLOW_UP_BYTES = 16 * 1024  # stored with every job


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
        """A follow-up that gets what has ended as `argument`, and its own follow-ups, as text for the job's row: it is
        enqueued later, maybe by a process that has the code of neither task."""
        if isinstance(task, Packed):
            return task
        text = json.dumps(self._packed(task, argument, ()))
        if len(text) > MAX_FOLLOW_UP_BYTES:
            name = task if isinstance(task, str) else task.name
            raise InvalidArguments(
                f"the follow-ups from {name!r} on take {len(text)} bytes in each job; at most {MAX_FOLLOW_UP_BYTES} are"
                " stored"
            )
        return text

    def _packed(self, task: Task[..., Any, Any] | str, argument: str, before: tuple[str, ...]) -> dict[str, Any]:
        known = self.all().get(task) if isinstance(task, str) else task
        task_name(task if isinstance(task, str) else task.name, "the task of a follow-up")
        if known is None:  # a task of another program
            return {"task": task}
        path = (*before, known.name)
        if known.name in before:  # each job's arguments contain those of the job before it: they would grow for ever
            raise InvalidArguments(
                f"follow-ups must not form a cycle: {' → '.join(path)}; enqueue it in the handler instead"
            )
        if known.argument_names not in ((), (argument,)):
            raise InvalidArguments(f"task {known.name!r} is a follow-up: it must take one argument named `{argument}`")
        values = known.chosen(f"task {known.name!r} is a follow-up")
        if callable(values["source"]):
            raise InvalidArguments(
                f"task {known.name!r} is a follow-up: its source must be a name, because a function of its arguments"
                " cannot be stored with the job before it"
            )
        for option in NOT_OF_FOLLOW_UPS:
            if values[option] != OPTIONS[option].default:
                raise InvalidArguments(
                    f"task {known.name!r} is a follow-up, which cannot have {OPTIONS[option].given}="
                )
        after = {option: values.pop(option) for option in FOLLOW_UPS}
        return {
            "task": known.name,
            **({} if known.argument_names else {"bare": True}),
            **to_json(JobOptions(**values)),
            **{option: self._packed(next_, "finished", path) for option, next_ in after.items() if next_ is not None},
        }

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
