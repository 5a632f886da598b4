"""Tasks: user code under a name, with the options its jobs are enqueued with."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from pydantic import TypeAdapter

from rowlock.core.errors import InvalidArguments, TaskNotFound, seconds
from rowlock.core.job import MAX_PRIORITY, MIN_PRIORITY, NewJob
from rowlock.core.policy import Backoff
from rowlock.store.ids import valid_id
from rowlock.work import handlers
from rowlock.work.arguments import Arguments, RawArguments
from rowlock.work.context import Context
from rowlock.work.handle import JobHandle

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

P = ParamSpec("P")
R = TypeVar("R")

RunsIn = Literal["async", "thread", "process"]
Rule = Literal["dead"] | Backoff | float | timedelta
NAME = re.compile(r"^[^\x00-\x1f\x7f]{1,200}$")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task's jobs run, and how they are enqueued unless `using` says otherwise."""

    queue: str = "default"
    max_attempts: int = 5
    backoff: Backoff | None = None
    timeout: float | None = None
    priority: int = 0
    source: str | Callable[..., str | None] | None = None
    on_success: Any = None
    on_dead: Any = None
    on_lost: Literal["retry", "dead"] = "retry"
    runs_in: RunsIn | None = None
    memory_mb: int | None = None
    keep: float | None = None
    rules: Mapping[type[BaseException], Rule] = dataclasses.field(default_factory=dict)


class Task(Generic[P, R]):
    """A registered task. Call it to run the plain function; `enqueue` makes a job of it."""

    def __init__(
        self, app: Rowlock, name: str, function: Callable[..., Any], options: TaskOptions, raw: bool = False
    ) -> None:
        if not inspect.isroutine(function):
            raise InvalidArguments(f"task {name!r} must be a function, not {function!r}")
        self.app, self.name, self.function, self.options = app, name, function, options
        self.__doc__, self.__name__ = function.__doc__, getattr(function, "__name__", name)
        self.__module__, self.__wrapped__ = function.__module__, function
        self.is_async = inspect.iscoroutinefunction(function)
        self.runs_in: RunsIn = options.runs_in or ("async" if self.is_async else "thread")
        if self.runs_in == "async" and not self.is_async:
            raise InvalidArguments(f"task {name!r} is a plain function; use runs_in='thread' or 'process'")
        if self.runs_in == "thread" and self.is_async:
            raise InvalidArguments(f"task {name!r} is async; use runs_in='async' or 'process'")
        self.takes_context = not raw and _takes_context(function)
        self.arguments = RawArguments(name) if raw else Arguments(name, function, self.takes_context)
        self.result_type: TypeAdapter[Any] | None = None if raw else _result_type(function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The plain function, run here and now."""
        if self.takes_context:
            return self.function(self.app._loose_context(self.name), *args, **kwargs)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a job of this call. Returned means committed (or part of the transaction it joined)."""
        return await Bound(self, {}).enqueue(*args, **kwargs)

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Make many jobs in one statement; all of them or none."""
        return await Bound(self, {}).enqueue_many(arguments)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop."""
        return Bound(self, {}).enqueue_sync(*args, **kwargs)

    def using(
        self,
        *,
        queue: str | None = None,
        source: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        run_after: datetime | None = None,
        expires_at: datetime | None = None,
        tags: Sequence[str] | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        job_id: str | None = None,
        connection: Any = None,
    ) -> Bound[P, R]:
        """This task with other options, for the next enqueue."""
        given = {key: value for key, value in locals().items() if key != "self" and value is not None}
        return Bound(self, given)


class Bound(Generic[P, R]):
    """A task with options chosen by `using`."""

    def __init__(self, task: Task[P, R], given: Mapping[str, Any]) -> None:
        self._task, self._given = task, given

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a job of this call with these options."""
        text, new = self._prepare(args, kwargs)
        return await self._task.app._enqueue_one(self._task, text, new, self._job_id(), self._given.get("connection"))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop."""
        text, new = self._prepare(args, kwargs)
        return self._task.app._enqueue_sync(self._task, text, new, self._job_id(), self._given.get("connection"))

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Make many jobs with these options in one statement; all of them or none."""
        if self._given.get("job_id"):
            raise InvalidArguments("job_id names one job; enqueue_many makes many")
        pack, shared = self._task.arguments.pack, None
        derived = callable(self._task.options.source) and "source" not in self._given
        rows: list[tuple[str, NewJob]] = []
        for number, kwargs in enumerate(arguments):
            try:
                text = pack((), kwargs)
            except InvalidArguments as error:
                raise InvalidArguments(f"item {number}: {error}") from None
            shared = self._new(text) if shared is None or derived else shared
            rows.append((text, shared))
        return await self._task.app._enqueue_many(self._task, rows, self._given.get("connection"))

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, NewJob]:
        text = self._task.arguments.pack(args, kwargs)
        return text, self._new(text)

    def _job_id(self) -> str | None:
        given = self._given.get("job_id")
        if given is None:
            return None
        if (job_id := valid_id(given)) is None:
            raise InvalidArguments(f"job_id must be a UUID, not {given!r} (uuid.uuid5 makes one from any name)")
        return job_id

    def _new(self, text: str) -> NewJob:
        task, given = self._task, self._given
        options = task.options
        if given.get("delay") is not None and given.get("run_after") is not None:
            raise InvalidArguments("give delay or run_after, not both")
        timeout = given.get("timeout", options.timeout)
        return NewJob(
            task=task.name,
            queue=name(given.get("queue", options.queue), "queue"),
            priority=priority(given.get("priority", options.priority)),
            owner=_text(given.get("owner"), "owner"),
            source=_text(given["source"] if "source" in given else _source(task, text), "source"),
            tags=_tags(given.get("tags", ())),
            max_attempts=attempts(given.get("max_attempts", options.max_attempts)),
            backoff=options.backoff.to_json() if options.backoff else None,
            timeout_seconds=None if timeout is None else seconds(timeout, "timeout"),
            delay=seconds(given.get("delay", 0), "delay"),
            run_after=_moment(given.get("run_after"), "run_after"),
            expires_at=_moment(given.get("expires_at"), "expires_at"),
            on_success=task.app._follow_up(options.on_success),
            on_dead=task.app._follow_up(options.on_dead),
            on_lost="dead" if options.on_lost == "dead" else None,
            keep_seconds=options.keep,
        )


def name(value: Any, what: str) -> str:
    """A name that can be stored and shown: 1–200 characters, none of them control characters."""
    if not isinstance(value, str) or not NAME.match(value):
        raise InvalidArguments(f"{what} must be a string of 1–200 characters without control characters, not {value!r}")
    return value


def priority(value: Any) -> int:
    """-100 (first) to 100 (last)."""
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidArguments(
            f"priority must be a whole number from {MIN_PRIORITY} (first) to {MAX_PRIORITY}, not {value!r}"
        )
    return value


def attempts(value: Any) -> int:
    """How many tries a job has."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise InvalidArguments(f"max_attempts must be a whole number from 1, not {value!r}")
    return value


def _text(value: Any, what: str) -> str | None:
    return None if value is None else name(value, what)


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(tag, str) for tag in value):
        raise InvalidArguments(f"tags must be a list of strings, not {value!r}")
    return tuple(name(tag, "a tag") for tag in value)


def _moment(value: Any, what: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidArguments(f"{what} must be a datetime with a time zone, not {value!r}")
    return value.astimezone(UTC)


def _source(task: Task[..., Any], text: str) -> str | None:
    """The source that a task derives from its arguments; its function may name only those that it needs."""
    source = task.options.source
    if not callable(source):
        return source
    arguments = task.arguments.with_defaults(text)
    parameters = inspect.signature(source).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        arguments = {p.name: arguments[p.name] for p in parameters if p.name in arguments}
    try:
        return source(**arguments)
    except Exception as error:
        raise InvalidArguments(
            f"task {task.name!r}: its source cannot be derived from the arguments: {error!r}"
        ) from error


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    is_context = annotation is Context or (isinstance(annotation, str) and annotation.split(".")[-1] == "Context")
    return is_context or (parameters[0].name == "ctx" and annotation is inspect.Parameter.empty)


def _result_type(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    annotation = inspect.signature(function, eval_str=False).return_annotation
    if isinstance(annotation, str):
        annotation = getattr(inspect.getmodule(function), annotation, Any)
    if annotation in (inspect.Signature.empty, Any, None) or not isinstance(annotation, type):
        return None
    if annotation in (dict, list, str, int, float, bool):
        return None
    try:
        return TypeAdapter(annotation)
    except Exception:  # not a type that pydantic knows: the JSON value is returned as it is
        return None


class TaskDecorator(Protocol):
    """What `app.task(...)` returns. `ctx` is not part of the arguments that a type checker sees."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...


class Registry:
    """The tasks of one app, and the @handler classes of the process."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; a second one under the same name is a mistake."""
        known = self._tasks.get(task.name)
        if known is not None and not handlers.reloaded(known.function, task.function):
            raise InvalidArguments(f"two tasks are named {task.name!r}: {known.function!r} and {task.function!r}")
        self._tasks[task.name] = task

    def get(self, wanted: str) -> Task[..., Any]:
        """The task of that name, or an error that suggests the nearest one."""
        task = self.all().get(wanted)
        if task is None:
            near = difflib.get_close_matches(wanted, self.all(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(self.all())) or 'none'}"
            raise TaskNotFound(f"no task named {wanted!r}{hint}")
        return task

    def all(self) -> dict[str, Task[..., Any]]:
        """Every task, by name."""
        for wanted, options in handlers.registered().items():
            if wanted not in self._tasks:
                self._tasks[wanted] = self._of_handler(wanted, options)
        return self._tasks

    def _of_handler(self, wanted: str, options: dict[str, Any]) -> Task[..., Any]:
        async def execute(params: dict[str, Any]) -> Any:
            return await handlers.get_handler(wanted).execute(params)

        return Task(self._app, wanted, execute, task_options(**options), raw=True)


def task_options(
    *,
    queue: str = "default",
    max_attempts: int = 5,
    backoff: Backoff | None = None,
    timeout: float | timedelta | None = None,
    priority_: int = 0,
    keep: float | timedelta | None = None,
    rules: Mapping[type[BaseException], Rule] | None = None,
    **rest: Any,
) -> TaskOptions:
    """Checked options of a task."""
    if backoff is not None and not isinstance(backoff, Backoff):
        raise InvalidArguments(f"backoff must be fixed(…) or exponential(…), not {backoff!r}")
    if rest.get("runs_in") not in (None, "async", "thread", "process"):
        raise InvalidArguments(f"runs_in must be 'async', 'thread' or 'process', not {rest['runs_in']!r}")
    if rest.get("on_lost", "retry") not in ("retry", "dead"):
        raise InvalidArguments(f"on_lost must be 'retry' or 'dead', not {rest['on_lost']!r}")
    memory = rest.get("memory_mb")
    if memory is not None and (not isinstance(memory, int) or memory < 16 or rest.get("runs_in") != "process"):
        raise InvalidArguments("memory_mb must be a whole number from 16, on a task with runs_in='process'")
    for kind in rules or {}:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidArguments(f"rules maps exception classes, not {kind!r}")
    return TaskOptions(
        queue=name(queue, "queue"),
        max_attempts=attempts(max_attempts),
        backoff=backoff,
        timeout=None if timeout is None else seconds(timeout, "timeout"),
        priority=priority(rest.pop("priority", priority_)),
        keep=None if keep is None else seconds(keep, "keep"),
        rules=dict(rules or {}),
        **rest,
    )
