"""`Client`: tasks, and the database they are enqueued to. What a program that only enqueues needs of Rowlock."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from rowlock.client.context import Context
from rowlock.client.handles.batch import Batch, collecting
from rowlock.client.handles.job import JobHandle
from rowlock.client.handles.jobs import Jobs
from rowlock.client.handles.schedules import Schedules, schedule_of
from rowlock.client.handles.sources import Sources
from rowlock.client.tasks.registry import Registry
from rowlock.client.tasks.task import AsyncTask, C, Task
from rowlock.core.clock import FakeClock
from rowlock.core.config import Settings
from rowlock.core.errors import BatchNotFound, InvalidArguments
from rowlock.core.option_checks import name, task_name
from rowlock.core.options import FOLLOW_UPS, FailureRule, task_options
from rowlock.core.policy import Backoff
from rowlock.store import batches
from rowlock.store.engine.app_schema import Migrations

R = TypeVar("R")
P = ParamSpec("P")
Lifespan = Callable[[], AsyncIterator[Mapping[str, Any]]]
Middleware = Callable[[Context, Callable[[], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]
Meter = Callable[[], Mapping[str, Iterable[Any]]]  # its numbers now, by metric; other threads may call it
ErrorHook = Callable[[Context, BaseException], Any]


class TaskDecorator(Protocol):
    """What `app.task(...)` returns. Type checkers see the function's arguments without `ctx`."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...


class ScheduleDecorator(Protocol):
    """What `app.schedule(...)` returns: it takes a task, or a function that it makes a task of."""

    @overload  # first, because a task also matches the overloads for callables
    def __call__(self, function: Task[P, R, C]) -> Task[P, R, C]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...


class Client(Jobs):
    """The tasks of one program and the database that queues them."""

    def __init__(
        self,
        database: str | None = None,
        *,
        config: str | Path | None = None,
        settings: Settings | None = None,
        clock: FakeClock | None = None,
        migrations: Migrations | None = None,
    ) -> None:
        super().__init__(database, config=config, settings=settings, clock=clock, migrations=migrations)
        self.registry = Registry(self)
        self.sources = Sources(self.perform)
        self.schedules = Schedules(self)
        self.own_sources: tuple[str, ...] = ()  # classes of sources that Rowlock's own tasks call
        self.lifespans: list[Lifespan] = []
        self.middlewares: list[Middleware] = []
        self.error_hooks: list[ErrorHook] = []
        self.meters: list[Meter] = [self.enqueued.samples]  # and of the parts that run here; /metrics shows them
        self.metered = False  # something in this process shows them
        self.pages: Path | None = None  # files for browsers, served beside the job API
        self.routers: list[Any] = []  # routes of the app itself, which the job API serves beside its own

    # --- tasks

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        name: str | None = None,
        /,
        *,
        queue: str = "default",
        max_attempts: int = 5,
        backoff: Backoff | None = None,
        timeout: float | timedelta | None = None,
        priority: int = 0,
        source: str | Callable[..., str | None] | None = None,
        on_success: Task[..., Any, Any] | str | None = None,
        on_dead: Task[..., Any, Any] | str | None = None,
        on_lost: Literal["retry", "dead"] = "retry",
        runs_in: Literal["async", "thread", "process"] | None = None,
        memory_mb: int | None = None,
        keep: float | timedelta | None = None,
        counted: bool = True,
        public: bool = False,
        keep_logs: bool = False,
        rules: Mapping[type[BaseException], FailureRule] | None = None,
        runs_on: Literal["redis"] | None = None,
        request: Mapping[str, str | Mapping[str, str]] | None = None,
    ) -> TaskDecorator: ...

    def task(self, wanted: Any = None, /, **options: Any) -> Any:
        """Register a function as a task. Its name defaults to the function's."""
        if wanted is not None and not isinstance(wanted, str):
            return self._register(getattr(wanted, "__name__", repr(wanted)), wanted, {})
        return lambda function: self._register(str(wanted or getattr(function, "__name__", "")), function, options)

    def _register(
        self, wanted: str, function: Callable[..., Any], options: dict[str, Any], own: bool = False
    ) -> Task[..., Any, Any]:
        """`own`: a task of Rowlock itself, which programs cannot enqueue."""
        for option in FOLLOW_UPS:
            if not isinstance(options.get(option), (str, Task, NoneType)):
                raise InvalidArguments(f"{option} must be a task or its name, not {options[option]!r}")
        task: Task[..., Any, Any] = Task(
            self,
            self.registry.packed,
            (name if own else task_name)(wanted, "a task's name"),
            function,
            task_options(**options),
        )
        task.shared()  # mistakes in follow-ups that are known by now are told here
        self.registry.add(task)
        return task

    def schedule(
        self,
        rule: str | timedelta,
        /,
        *,
        name: str | None = None,
        zone: str = "UTC",
        seconds: bool = False,
        missed: Literal["latest", "skip", "all"] = "latest",
        overlap: Literal["allow", "skip"] = "allow",
        args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ScheduleDecorator:
        """Fire a task at each tick of a rule: cron ("0 3 * * *", "@daily"), "every 30s" or a timedelta, or one moment
        ("at 2026-03-01T09:00"). Above a function it makes a task of it; above a task it may be given many times, each
        with a `name`. Options: `missed_most`, `missed_window`, `jitter`, `start`, `end`, `queue`, `priority`, `owner`,
        `source`, `max_attempts`, `timeout`."""
        given = {"zone": zone, "seconds": seconds, "missed": missed, "overlap": overlap, "args": args, **options}
        given |= {"every": rule} if isinstance(rule, timedelta) else {"rule": rule}

        def register(target: Any) -> Any:
            task: Task[..., Any, Any] = target if isinstance(target, Task) else self.task(target)
            wanted = name or task.name
            self.schedules.declare(wanted, lambda: schedule_of(self, wanted, task, given))
            return task

        return cast(ScheduleDecorator, register)

    def get_task(self, wanted: str) -> Task[..., Any, Any]:
        """The task of that name."""
        return self.registry.get(wanted)

    def add_own_tasks(self) -> None:
        """Register the tasks that Rowlock itself needs under these settings. A worker calls it when it starts: only
        then are the settings known."""

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register an async generator that yields resources; opened once per worker, given as ctx.resources."""
        self.lifespans.append(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Register `async def around(ctx, call)`, wrapped around every attempt; the first registered is outermost."""
        self.middlewares.append(function)
        return function

    def on_error(self, function: ErrorHook) -> ErrorHook:
        """Register a function called with (ctx, exception) when an attempt fails."""
        if inspect.iscoroutinefunction(function):
            raise InvalidArguments("an error hook must be a plain function; it may start a task of its own")
        self.error_hooks.append(function)
        return function

    async def enqueue(self, task: str, /, *args: Any, **arguments: Any) -> JobHandle[Any]:
        """Enqueue by name. A @handler class takes its parameters as one dictionary or as keywords."""
        return await self.registry.get(task).enqueue(*args, **arguments)

    # --- batches

    def batch(
        self, name: str, *, owner: str | None = None, on_end: Task[..., Any, Any] | str | None = None
    ) -> AbstractAsyncContextManager[Batch]:
        """A block that collects jobs (`task.using(batch=batch)`); sealed when it ends, cancelled when it raises.
        `on_end` is enqueued once, when all of them are final."""
        if on_end is not None and not isinstance(on_end, (str, Task)):
            raise InvalidArguments(f"on_end must be a task or its name, not {on_end!r}")
        return collecting(self, name, owner, None if on_end is None else self.registry.packed(on_end, "batch"))

    async def find_batch(self, batch_id: str) -> Batch:
        """A batch by its id."""
        row = await self.perform(batches.get(str(batch_id)))
        if row is None:
            raise BatchNotFound(str(batch_id))
        return Batch(self, row.id, row.name, row.owner, row)
