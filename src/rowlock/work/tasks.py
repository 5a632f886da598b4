"""Tasks: user code under a name, with the options its jobs are enqueued with."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from pydantic import TypeAdapter

from rowlock.core.errors import InvalidArguments, TaskNotFound, seconds
from rowlock.core.job import NewJob
from rowlock.store.adding import NewRow
from rowlock.store.ids import valid_id
from rowlock.work import handlers
from rowlock.work.arguments import Arguments, RawArguments, hints_of
from rowlock.work.context import Context
from rowlock.work.enqueuer import Wanted
from rowlock.work.handle import JobHandle
from rowlock.work.options import (
    RunsIn,
    TaskOptions,
    Unique,
    attempts,
    batch_id,
    key_text,
    moment,
    name,
    priority,
    source_name,
    tags,
    task_options,
    text_or_none,
    uniqueness,
)

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.batch import Batch

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")  # what a plain call gives: R, or a coroutine of it


class Task(Generic[P, R, C]):
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
        self.takes_context = _takes_context(function)
        self.arguments = RawArguments(name) if raw else Arguments(name, function, self.takes_context)
        self.usual: NewJob | None = None
        self._plain: Bound[P, R] = Bound(self, {})
        self.result_type: TypeAdapter[Any] | None = None if raw else _result_type(function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """The plain function, run here and now."""
        if self.takes_context:
            return self.function(self.app._loose_context(self.name), *args, **kwargs)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, JobHandle[R]]:
        """Make a job of this call. Returned means committed (or part of the transaction it joined)."""
        return self._plain.enqueue(*args, **kwargs)

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Make many jobs in one statement; all of them or none."""
        return await self._plain.enqueue_many(arguments)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop."""
        return self._plain.enqueue_sync(*args, **kwargs)

    def using(
        self,
        *,
        queue: str | None = None,
        source: str | None = None,
        key: str | Callable[..., str] | None = None,
        unique: Unique | timedelta | None = None,
        batch: Batch | str | None = None,
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
        """This task with other options, for the next enqueue. A function as `key` makes each job's key from its
        arguments."""
        given = {key: value for key, value in locals().items() if key != "self" and value is not None}
        return Bound(self, given)


AsyncTask: TypeAlias = Task[P, R, Coroutine[Any, Any, R]]


class Bound(Generic[P, R]):
    """A task with options chosen by `using`."""

    def __init__(self, task: Task[P, R, Any], given: Mapping[str, Any]) -> None:
        self._task, self._given = task, given

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Make a job of this call with these options."""
        return await self._enqueue(args, kwargs, None)

    async def _enqueue(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], under: tuple[str, str] | None
    ) -> JobHandle[R]:
        task = self._task
        return await task.app.enqueuer.one(task, self._wanted(args, kwargs), self._given.get("connection"), under)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop."""
        task = self._task
        return task.app.enqueuer.one_sync(task, self._wanted(args, kwargs), self._given.get("connection"))

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Make many jobs with these options in one statement; all of them or none."""
        if self._given.get("job_id"):
            raise InvalidArguments("job_id names one job; enqueue_many makes many")
        task, key = self._task, self._given.get("key")
        if key is not None and not callable(key):
            key_text(key)
            raise InvalidArguments("one key for many jobs would leave one of them; give a function of their arguments")
        derived = callable(task.options.source) and "source" not in self._given
        pack, seen = task.arguments.pack, task.arguments.pack_seen if derived or key is not None else None
        new = self._new(None if derived else "{}")
        rows: list[NewRow] = []
        for number, kwargs in enumerate(arguments):
            try:
                if not isinstance(kwargs, Mapping) or not _named(kwargs):
                    raise InvalidArguments(f"must be a mapping of argument names, not {kwargs!r:.100}")
                if seen is None:
                    rows.append(NewRow("", pack((), kwargs), None, new.source))
                    continue
                text, given = seen(kwargs)
                source = source_name(_made(task, given, task.options.source, "source")) if derived else new.source
                own = None if key is None else key_text(_made(task, given, key, "key"))
                rows.append(NewRow("", text, own, source))
            except InvalidArguments as error:
                raise InvalidArguments(f"item {number}: {error}") from None
        return await task.app.enqueuer.many(task, rows, new, self._given.get("connection"))

    def _wanted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Wanted:
        task, key = self._task, self._given.get("key")
        text = task.arguments.pack(args, kwargs)
        if not self._given:
            return Wanted(text, self._new(text))
        if callable(key):
            key = _derived(task, text, key, "key")
        return Wanted(text, self._new(text), key_text(key) if "key" in self._given else None, self._job_id())

    def _job_id(self) -> str | None:
        given = self._given.get("job_id")
        if given is None:
            return None
        if (job_id := valid_id(given)) is None:
            raise InvalidArguments(f"job_id must be a UUID, not {given!r} (uuid.uuid5 makes one from any name)")
        return job_id

    def _new(self, text: str | None) -> NewJob:
        """The options of a job with these arguments; without them, those that do not depend on any."""
        task, given = self._task, self._given
        options = task.options
        if not given and task.usual is not None:
            return task.usual
        if given.get("delay") is not None and given.get("run_after") is not None:
            raise InvalidArguments("give delay or run_after, not both")
        timeout = given.get("timeout", options.timeout)
        unique, window = uniqueness(given.get("key"), given.get("unique"))
        source = given.get("source", options.source)
        if callable(source):
            source = None if text is None else _derived(task, text, source, "source")
        new = NewJob(
            task=task.name,
            queue=name(given.get("queue", options.queue), "queue"),
            priority=priority(given.get("priority", options.priority)),
            owner=text_or_none(given.get("owner"), "owner"),
            source=source_name(source),
            batch_id=batch_id(given.get("batch")),
            unique=unique,
            window=window,
            tags=tags(given.get("tags", ())),
            max_attempts=attempts(given.get("max_attempts", options.max_attempts)),
            backoff=options.backoff.to_json() if options.backoff else None,
            timeout_seconds=None if timeout is None else seconds(timeout, "timeout"),
            delay=seconds(given.get("delay", 0), "delay"),
            run_after=moment(given.get("run_after"), "run_after"),
            expires_at=moment(given.get("expires_at"), "expires_at"),
            on_success=task.app._follow_up(options.on_success),
            on_dead=task.app._follow_up(options.on_dead),
            on_lost="dead" if options.on_lost == "dead" else None,
            keep_seconds=options.keep,
        )
        if not given and not callable(options.source) and options.on_success is None and options.on_dead is None:
            task.usual = new  # the same for every job that is enqueued without `using`
        return new


def _named(arguments: Mapping[Any, Any]) -> bool:
    return {str}.issuperset(map(type, arguments)) or all(isinstance(name, str) for name in arguments)


def _derived(task: Task[..., Any, Any], text: str, function: Any, what: str) -> Any:
    """What a function derives from a job's arguments."""
    return _made(task, task.arguments.with_defaults(text), function, what)


def _made(task: Task[..., Any, Any], arguments: dict[str, Any], function: Any, what: str) -> Any:
    """The same of arguments as the task sees them; the function may name only those that it needs."""
    try:
        names = _names(function)
    except (TypeError, ValueError):  # `str` has no signature; an object that cannot be hashed
        must = "must be a function whose arguments have names"
        raise InvalidArguments(f"task {task.name!r}: its {what} {must}, not {function!r:.100}") from None
    if names is not None:
        arguments = {name: arguments[name] for name in names if name in arguments}
    try:
        return function(**arguments)
    except Exception as error:
        raise InvalidArguments(
            f"task {task.name!r}: its {what} cannot be derived from the arguments: {error!r}"
        ) from error


@lru_cache(maxsize=1000)
def _names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The arguments that a function names; None when it takes all. Remembered: a bulk asks for each of its jobs."""
    parameters = inspect.signature(function).parameters.values()
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters) else tuple(p.name for p in parameters)


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    is_context = annotation is Context or (isinstance(annotation, str) and annotation.split(".")[-1] == "Context")
    return is_context or (parameters[0].name == "ctx" and annotation is inspect.Parameter.empty)


def _result_type(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """What turns a stored result back into what the annotation says; None where JSON says it all."""
    annotation = hints_of(function).get("return", Any)
    if annotation in (Any, None, NoneType, dict, list, str, int, float, bool):
        return None
    try:
        return TypeAdapter(annotation)
    except Exception:  # not a type that pydantic knows: the JSON value is returned as it is
        return None


class TaskDecorator(Protocol):
    """What `app.task(...)` returns. `ctx` is not part of the arguments that a type checker sees."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...


class ScheduleDecorator(Protocol):
    """What `app.schedule(...)` returns: the task, or a task made of the function."""

    @overload  # a task is a callable, too; this one comes first
    def __call__(self, function: Task[P, R, C]) -> Task[P, R, C]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...


class Registry:
    """The tasks of one app, and the @handler classes of the process."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._tasks: dict[str, Task[..., Any, Any]] = {}

    def add(self, task: Task[..., Any, Any]) -> None:
        """Register a task; a second one under the same name is a mistake."""
        known = self._tasks.get(task.name)
        if known is not None and not handlers.reloaded(known.function, task.function):
            raise InvalidArguments(f"two tasks are named {task.name!r}: {known.function!r} and {task.function!r}")
        self._tasks[task.name] = task

    def get(self, wanted: str) -> Task[..., Any, Any]:
        """The task of that name, or an error that suggests the nearest one."""
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

        return Task(self._app, wanted, execute, task_options(**options), raw=True)
