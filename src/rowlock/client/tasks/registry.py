"""The tasks of one app by name: decorated functions, `@handler` classes, and tasks of other programs, which are known
only from what their workers stored in the database."""

from __future__ import annotations

import difflib
import inspect
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic.errors import PydanticInvalidForJsonSchema

from rowlock.client.context import Context
from rowlock.client.tasks.task import Task
from rowlock.core.errors import HandlerNotFoundError, InvalidArguments, NotAllowed, TaskNotFound
from rowlock.core.option_checks import task_name
from rowlock.core.options import (
    FOLLOW_UPS,
    NOT_OF_FOLLOW_UPS,
    OPTIONS,
    JobOptions,
    Packed,
    TaskOptions,
    from_json,
    task_options,
    to_json,
)
from rowlock.store.jobs import tasks
from rowlock.store.jobs.tasks import StoredTask

if TYPE_CHECKING:
    from rowlock.client.client import Client

log = logging.getLogger("rowlock.tasks")
MAX_FOLLOW_UP_BYTES = 16 * 1024  # stored with every job


class BaseHandler(ABC):
    """Base class of handlers. Each attempt gets a new instance; `self.context` has its progress and its transaction."""

    _context: Context | None = None

    @property
    def context(self) -> Context:
        """The context of the running attempt; NotAllowed outside of a worker."""
        if self._context is None:
            raise NotAllowed(f"{type(self).__name__}.context is available only while a worker runs the job")
        return self._context

    @abstractmethod
    async def execute(self, params: dict[str, Any]) -> Any:
        """Do the work of one job. The return value is its result; an exception fails the attempt."""


H = TypeVar("H", bound=type[BaseHandler])

_registry: dict[str, tuple[type[BaseHandler], dict[str, Any]]] = {}


def handler(name: str, **options: Any) -> Callable[[H], H]:
    """Register a handler class as the task `name`, with the options of `@app.task`."""
    if task_options(**options).runs_in == "thread":
        raise InvalidArguments(f"handler {name!r} is async; use runs_in='async' or 'process'")

    def register(cls: H) -> H:
        if not (isinstance(cls, type) and issubclass(cls, BaseHandler)):
            raise InvalidArguments(f"@handler({name!r}) needs a subclass of BaseHandler, not {cls!r}")
        known = _registry.get(name)
        if known and not reloaded(known[0], cls):
            raise InvalidArguments(f"two handlers are named {name!r}: {known[0]!r} and {cls!r}")
        _registry[name] = (cls, options)
        return cls

    return register


def reloaded(before: Any, after: Any) -> bool:
    """Whether `after` is `before`, or its new version from a reloaded module, and not another object of that name."""
    same = (before.__module__, before.__qualname__) == (after.__module__, after.__qualname__)
    return before is after or (same and "<locals>" not in after.__qualname__)


def get_handler(name: str) -> BaseHandler:
    """A new instance of the handler registered under `name`."""
    if name not in _registry:
        raise HandlerNotFoundError(name)
    return _registry[name][0]()


async def stored_task(
    client: Client, name: str, source: str | None, *, defaults: bool = False, how: str = ""
) -> Task[..., Any, Any]:
    """The task of that name. It takes any arguments and has the options that its worker stored; if no worker did,
    `defaults` allows default options instead of an error. `how` ends the error message: what the user can do."""
    wanted = task_name(name, "a task's name")
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


class Registry:
    """The tasks of one app, and the @handler classes of the process."""

    def __init__(self, app: Client) -> None:
        self.app = app
        self._tasks: dict[str, Task[..., Any, Any]] = {}

    def add(self, task: Task[..., Any, Any]) -> None:
        """Register a task. Raises InvalidArguments if another function has that name already."""
        known = self._tasks.get(task.name)
        if known is not None and not reloaded(known.function, task.function):
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
        for wanted, (_, options) in _registry.items():
            if wanted not in self._tasks:
                self._tasks[wanted] = self._of_handler(wanted, options)
        return self._tasks

    def _of_handler(self, wanted: str, options: dict[str, Any]) -> Task[..., Any, Any]:
        async def execute(ctx: Context, params: dict[str, Any]) -> Any:
            instance = get_handler(wanted)
            instance._context = ctx
            return await instance.execute(params)

        name = task_name(wanted, "a handler's name")
        return Task(self.app, self.packed, name, execute, task_options(**options), raw=True)

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
