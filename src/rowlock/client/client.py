"""`Client`, the base of `Rowlock`: everything that a program needs to define tasks, enqueue jobs and read them.

`Rowlock` (app.py) adds the methods that run workers, dispatchers, bridges and the API. Those only know the client.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any, Concatenate, Literal, Protocol, Self, TypeVar, cast, overload

from rowlock.client.context import Context
from rowlock.client.handles.batch import Batch, collecting
from rowlock.client.handles.job import JobHandle
from rowlock.client.handles.schedules import Schedules, schedule_of
from rowlock.client.handles.sources import Sources
from rowlock.client.open_stores import Stores
from rowlock.client.results.folder import ResultFolder
from rowlock.client.results.results import Results
from rowlock.client.settings import read_settings
from rowlock.client.sync_bridge import Portal
from rowlock.client.tasks.registry import Registry
from rowlock.client.tasks.task import AsyncTask, Enqueued, P, R, ScheduleDecorator, Task, TaskDecorator
from rowlock.client.transactions import joined, joining
from rowlock.core.config import ResultSettings, Settings
from rowlock.core.errors import BatchNotFound, ConfigError, InvalidArguments, JobNotFound, NotAllowed, at_most
from rowlock.core.job import Attempt, Job, NewJob
from rowlock.core.option_checks import name, task_name
from rowlock.core.options import FOLLOW_UPS, FailureRule, task_options
from rowlock.core.policy import DAY, Backoff
from rowlock.core.states import State
from rowlock.core.times import FakeClock
from rowlock.store import batches
from rowlock.store.engine import callers_connection
from rowlock.store.engine.app_schema import Migrations, prepare
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Runs, Session, Store, StoreOptions, absolute, here, open_store
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import retry as retries
from rowlock.store.jobs import settle
from rowlock.store.read import job_rows, search
from rowlock.store.read.counts import Stats, read_stats
from rowlock.store.read.explain import Explanation, explain
from rowlock.store.read.filter import JobFilter

T = TypeVar("T")
Lifespan = Callable[[], AsyncIterator[Mapping[str, Any]]]
Middleware = Callable[[Context, Callable[[], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]
Meter = Callable[[], Mapping[str, Iterable[Any]]]  # its numbers now, by metric; other threads may call it
ErrorHook = Callable[[Context, BaseException], Any]


class EnqueueSpans(Protocol):
    """Makes a span of each enqueue."""

    def sending(self, new: NewJob, count: int) -> AbstractContextManager[NewJob]:
        """A block that enqueues `count` jobs, as a span; gives the options with the span's traceparent."""


class Client:
    """The tasks of one program and the database that queues them. The database is opened on first use, once for each
    event loop. Inside `transaction()`, every call is part of the transaction."""

    def __init__(
        self,
        database: str | None = None,
        *,
        config: str | Path | None = None,
        settings: Settings | None = None,
        clock: FakeClock | None = None,
        migrations: Migrations | None = None,
    ) -> None:
        self._folder = here()  # where relative paths start, wherever the process goes later
        self._given = (database, config)
        self._settings = settings
        self._found: tuple[Settings, str] | None = None  # the database that these settings mean
        self._results: tuple[ResultSettings, Results] | None = None
        self.clock = clock
        self.migrations = migrations
        self._stores = Stores(self._open)
        self._portal = Portal()
        self.enqueued = Enqueued()
        self.registry = Registry(self)
        self.sources = Sources(self)
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
        """Make a task of a function: `@app.task`, or `@app.task("name", queue="mail", …)`. The name defaults to the
        function's."""
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
        checked = (name if own else task_name)(wanted, "a task's name")
        task: Task[..., Any, Any] = Task(self, self.registry.packed, checked, function, task_options(**options))
        task.shared()  # raises for mistakes in follow-ups that are already registered
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
        """Enqueue a task at each tick of a rule: cron ("0 3 * * *", "@daily"), "every 30s" or a timedelta, or a single
        time ("at 2026-03-01T09:00"). Put it above a function, which becomes a task, or above a task, as often as you
        like if each has a `name`. More options: `missed_most`, `missed_window`, `jitter`, `start`, `end`, `queue`,
        `priority`, `owner`, `source`, `max_attempts`, `timeout`."""
        given = {"zone": zone, "seconds": seconds, "missed": missed, "overlap": overlap, "args": args, **options}
        given |= {"every": rule} if isinstance(rule, timedelta) else {"rule": rule}

        def register(target: Any) -> Any:
            task: Task[..., Any, Any] = target if isinstance(target, Task) else self.task(target)
            wanted = name or task.name
            self.schedules.declare(wanted, lambda: schedule_of(self, wanted, task, given))
            return task

        return cast(ScheduleDecorator, register)

    def get_task(self, wanted: str) -> Task[..., Any, Any]:
        """The task of this name; raises TaskNotFound, with the most similar name, if there is none."""
        return self.registry.get(wanted)

    def add_own_tasks(self) -> None:
        """Register the tasks that Rowlock itself needs with these settings. A worker calls it when it starts, because
        the settings aren't known before."""

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register an async generator that yields a mapping of resources. Each worker opens it once; handlers find the
        resources in `ctx.resources`."""
        self.lifespans.append(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Register `async def around(ctx, call)`, which is wrapped around every attempt. The first one registered is
        the outermost."""
        self.middlewares.append(function)
        return function

    def on_error(self, function: ErrorHook) -> ErrorHook:
        """Register a function to call with `(ctx, exception)` whenever an attempt fails."""
        if inspect.iscoroutinefunction(function):
            raise InvalidArguments("an error hook must be a plain function; it may start an asyncio task")
        self.error_hooks.append(function)
        return function

    async def enqueue(self, task: str, /, *args: Any, **arguments: Any) -> JobHandle[Any]:
        """Enqueue a job by the name of its task. A @handler class takes its parameters as one dictionary or as
        keywords."""
        return await self.registry.get(task).enqueue(*args, **arguments)

    # --- jobs

    async def attempts(self, job_id: str) -> list[Attempt]:
        """The attempts of a job that did not succeed, in order."""
        return await self.perform(job_rows.attempts(job_id_of(job_id)))

    async def job(self, job_id: str) -> JobHandle[Any]:
        """The job with this id; raises JobNotFound if there is none."""
        row = await self.perform(job_rows.get(job_id_of(job_id)))
        if row is None:
            raise JobNotFound(str(job_id))
        return self._shown(row)

    async def jobs(
        self,
        *,
        state: State | str | Sequence[State | str] = (),
        task: str | None = None,
        queue: str | None = None,
        owner: str | None = None,
        source: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[JobHandle[Any]]:
        """Jobs that match every condition, newest first. For the next page, pass the last one's id as `before`."""
        wanted = JobFilter(_states(state), task, queue, owner, source, tag, since, until)
        rows = await self.perform(search.list_jobs(wanted, at_most(limit), before))
        return [self._shown(row) for row in rows]

    async def stats(self) -> Stats:
        """How many jobs each queue has, how many workers are alive, and how many jobs finished in the last minutes."""
        return await self.perform(read_stats())

    async def cancel(self, job_id: str) -> str:
        """Cancel a job. Returns `cancelled` if it was waiting, or `cancelling` if it runs and was asked to stop; raises
        NotAllowed if it has finished."""
        answer = (await self.perform(cancels.cancel([job_id_of(job_id)], self.keep)))[job_id_of(job_id)]
        if answer == "missing":
            raise JobNotFound(str(job_id))
        if answer == "final":
            raise NotAllowed(f"job {job_id} has already finished; nothing to cancel")
        return answer

    async def retry(self, job_id: str, *, tries: int = 1) -> JobHandle[Any]:
        """Queue a dead or cancelled job again, with `tries` more tries. It keeps its id, attempt number and history."""
        if not await self.perform(retries.retry([job_id_of(job_id)], tries)):
            job = await self.job(job_id)
            if job.state in (State.DEAD, State.CANCELLED):
                raise NotAllowed(f"job {job_id} cannot be retried: its key is held by a newer job")
            raise NotAllowed(f"job {job_id} is {job.state}; only dead and cancelled jobs can be retried")
        return await self.job(job_id)

    async def explain(self, job_id: str) -> Explanation:
        """Why a job isn't running, and what it is waiting for."""
        found = await self.perform(explain(job_id_of(job_id)))
        if found is None:
            raise JobNotFound(str(job_id))
        return found

    def _shown(self, row: Job) -> JobHandle[Any]:
        task = self.registry.all().get(row.task)
        return JobHandle(self, row.id, row, task.result_type if task else None, created=False)

    # --- batches

    def batch(
        self, name: str, *, owner: str | None = None, on_end: Task[..., Any, Any] | str | None = None
    ) -> AbstractAsyncContextManager[Batch]:
        """A block that collects jobs: `async with app.batch("import") as batch`, and in it
        `task.using(batch=batch).enqueue(…)`. The batch is sealed when the block ends, and cancelled when it raises.
        `on_end` is enqueued once, when all of its jobs have finished."""
        if on_end is not None and not isinstance(on_end, (str, Task)):
            raise InvalidArguments(f"on_end must be a task or its name, not {on_end!r}")
        return collecting(self, name, owner, None if on_end is None else self.registry.packed(on_end, "batch"))

    async def find_batch(self, batch_id: str) -> Batch:
        """The batch with this id; raises BatchNotFound if there is none."""
        row = await self.perform(batches.get(str(batch_id)))
        if row is None:
            raise BatchNotFound(str(batch_id))
        return Batch(self, row.id, row.name, row.owner, row)

    # --- settings

    @property
    def settings(self) -> Settings:
        """All settings: flags over environment over config file over defaults, read when they are first needed."""
        if self._settings is None:
            self._settings = read_settings(*self._given, folder=self._folder)
        return self._settings

    def configure(self, settings: Settings, folder: str | None = None) -> None:
        """Use these settings from now on. For the command line, before anything is opened. Relative paths in them start
        at `folder`, or else where this app was made."""
        self._settings, self._folder = settings, folder or self._folder

    @property
    def database(self) -> str:
        """The database's URL; that of a file has its absolute path. It's resolved once, so that everything opens the
        same database."""
        settings = self.settings
        if self._found is None or self._found[0] is not settings:
            self._found = (settings, absolute(settings.database, self._folder))
        return self._found[1]

    @property
    def keep(self) -> settle.Keep:
        """How long finished jobs are kept."""
        retention = self.settings.retention
        return settle.Keep(retention.succeeded_days * DAY, retention.dead_days * DAY)

    @property
    def results(self) -> Results:
        """Where result files are kept. Made once, because object storage holds connections."""
        settings = self.settings.results
        if self._results is None or self._results[0] is not settings:
            self._results = (settings, _open_results(settings, os.path.join(self._folder or "", settings.path)))
        return self._results[1]

    @property
    def result_folder(self) -> ResultFolder:
        """The local folder of results, for workers behind Redis, which are given paths."""
        found = self.results
        if not isinstance(found, ResultFolder):
            raise ConfigError(
                'tasks with runs_on="redis" need results in a folder: their workers are given a path below'
                " results.path; remove results.url"
            )
        return found

    @property
    def traces(self) -> EnqueueSpans | None:
        """Makes a span of each enqueue; None if traces are off. `Rowlock`, which knows the signals, makes it."""
        return None

    def sending(self, new: NewJob, count: int) -> AbstractContextManager[NewJob]:
        """A block that enqueues jobs with these options, as a span if traces are on; gives the options to use in it."""
        return nullcontext(new) if (traces := self.traces) is None else traces.sending(new, count)

    # --- opening and closing

    def store_options(self, **changes: Any) -> StoreOptions:
        settings = self.settings
        options = StoreOptions(
            pooler=settings.pooler,
            direct_url=settings.direct_url,
            transaction_seconds=settings.worker.transaction_seconds,
            session_connections=settings.transactions.connections,
            session_patience=settings.transactions.wait_seconds,
            idle_seconds=settings.transactions.idle_seconds,
            statement_seconds=settings.transactions.statement_seconds,
            clock=self.clock,
        )
        return dataclasses.replace(options, **changes)

    async def store(self) -> Store:
        """The open store of the running event loop; opened on first use, closed with the loop."""
        return await self._stores.get()

    async def _open(self, migrate: bool | None = None) -> Store:
        store = await open_store(self.database, self.store_options(migrate=migrate))
        if self.migrations is not None:
            try:
                store.migrated += await prepare(store, self.migrations, migrate)
            except BaseException:
                await store.close()
                raise
        return store

    async def open_reader(self, connections: int, seconds: float) -> Store:
        """Another store of this database, which the caller closes, for reads that mustn't hold up the app's own: they
        share a few connections, and none may take longer than `seconds`."""
        changes = {"connections": connections, "read_seconds": seconds, "command_timeout": 2 * seconds, "repeats": 1}
        return await open_store(self.database, self.store_options(migrate=False, **changes))

    async def open(self) -> Self:
        """Open the database now rather than on first use, so that a wrong URL raises here."""
        await self.store()
        return self

    async def close(self) -> None:
        """Close the database; it opens again on the next use."""
        await self._stores.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def migrate(self) -> list[str]:
        """Apply missing migrations, both Rowlock's and the app's; returns their names."""
        store = await self._open(migrate=True)
        await store.close()
        return list(store.migrated)

    # --- operations and transactions

    async def place(self, connection: Any = None) -> Runs:
        """Where an operation of the calling code runs: on the caller's `connection`; else in the transaction that the
        code is in; else in this event loop's store, in a new transaction."""
        if connection is not None:
            return callers_connection.OnConnection(connection, self.clock)
        return joined(self) or self._stores.opened() or await self._stores.get()

    async def perform(self, op: Operation[T]) -> T:
        """Run an operation in the transaction that the code is in, else in a new one."""
        return await (await self.place()).run(op)

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this app from sync code, with or without an event loop running in this thread."""
        if joined(self) is not None:
            work.close()
            raise InvalidArguments("inside a transaction of the app, await it: its connection is not this thread's")
        return self._portal.run(work)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """A block whose SQL and enqueues commit together: `async with app.transaction() as tx`. Every call of the app
        inside it joins the transaction; a block inside another is a savepoint."""
        around = joined(self)
        if around is not None:  # inside of another: part of it, and undone with it
            async with around.savepoint() as part:
                yield part
            return
        async with (await self.store()).transaction() as session, joining(self, session):
            yield session

    async def fetch(self, sql: str, *args: Any) -> list[Sequence[Any]]:
        """The rows of your own query, which mustn't write. Inside `transaction()` it reads there; outside, on SQLite,
        it doesn't wait for writers."""
        return await (joined(self) or await self.store()).fetch(sql, *args)


def _states(given: State | str | Sequence[State | str]) -> tuple[State, ...]:
    try:
        return tuple(State(state) for state in ((given,) if isinstance(given, str) else given))
    except (TypeError, ValueError):
        raise InvalidArguments(f"state must be one or more of {', '.join(State)}, not {given!r}") from None


def job_id_of(text: Any) -> str:
    job_id = valid_id(str(text))
    if job_id is None:
        raise JobNotFound(str(text))
    return job_id


def _open_results(settings: ResultSettings, path: str) -> Results:
    if settings.url is None:
        return ResultFolder(path, settings.file_bytes)
    try:
        from rowlock.client.results.objects import open_bucket
    except ImportError as error:
        raise ConfigError('results.url needs a library: pip install "rowlock[s3]" (obstore is missing)') from error
    return open_bucket(settings, path)
