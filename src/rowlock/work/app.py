"""`Rowlock`: tasks, and the database they are enqueued to."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from rowlock.core.clock import FakeClock
from rowlock.core.config import Settings
from rowlock.core.errors import BatchNotFound, InvalidArguments, JobNotFound, NotAllowed, at_most
from rowlock.core.job import Attempt, Claimed
from rowlock.core.policy import DAY, Backoff
from rowlock.core.states import State
from rowlock.governance.sources import Sources
from rowlock.store import batches, jobs, reads
from rowlock.store.app_schema import Migrations, prepare
from rowlock.store.engine import Session, Store, StoreOptions, absolute, here, open_store
from rowlock.store.explain import Explanation, explain
from rowlock.store.ids import valid_id
from rowlock.work import follow_ups
from rowlock.work.batch import Batch, collecting
from rowlock.work.context import Context
from rowlock.work.enqueuer import Enqueuer
from rowlock.work.handle import JobHandle
from rowlock.work.options import Rule, name, task_options
from rowlock.work.portal import Portal
from rowlock.work.schedules import Schedules, schedule_of
from rowlock.work.settings import read_settings
from rowlock.work.stores import Stores
from rowlock.work.tasks import AsyncTask, Bound, Registry, ScheduleDecorator, Task, TaskDecorator
from rowlock.work.transactions import joined, joining

if TYPE_CHECKING:
    from rowlock.work.dispatcher import Dispatcher
    from rowlock.work.lease import Lease
    from rowlock.work.pool import WorkerPool

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Lifespan = Callable[[], AsyncIterator[Mapping[str, Any]]]
Middleware = Callable[[Context, Callable[[], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]
ErrorHook = Callable[[Context, BaseException], Any]


class Rowlock:
    """An app: the tasks of one program and the database that queues them."""

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
        self.clock = clock
        self.migrations = migrations
        self.registry = Registry(self)
        self.enqueuer = Enqueuer(self)
        self.sources = Sources(self._here)
        self.schedules = Schedules(self)
        self.lifespans: list[Lifespan] = []
        self.middlewares: list[Middleware] = []
        self.error_hooks: list[ErrorHook] = []
        self._stores = Stores(self._open)
        self._portal = Portal()

    @property
    def settings(self) -> Settings:
        """Flags, environment, file and defaults, read when first needed."""
        if self._settings is None:
            self._settings = read_settings(*self._given, folder=self._folder)
        return self._settings

    def configure(self, settings: Settings, folder: str | None = None) -> None:
        """Use these settings from now on; for the command line, before anything is opened. A relative path in them
        starts at `folder`, or where this app was made."""
        self._settings, self._folder = settings, folder or self._folder

    @property
    def database(self) -> str:
        """The database's URL, a file's with its path from the root: found once, and the same for all who open it."""
        settings = self.settings
        if self._found is None or self._found[0] is not settings:
            self._found = (settings, absolute(settings.database, self._folder))
        return self._found[1]

    @property
    def keep(self) -> jobs.Keep:
        """How long finished jobs are kept."""
        retention = self.settings.retention
        return jobs.Keep(retention.succeeded_days * DAY, retention.dead_days * DAY)

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
        rules: Mapping[type[BaseException], Rule] | None = None,
    ) -> TaskDecorator: ...

    def task(self, wanted: Any = None, /, **options: Any) -> Any:
        """Register a function as a task. Its name defaults to the function's."""
        if wanted is not None and not isinstance(wanted, str):
            return self._register(getattr(wanted, "__name__", repr(wanted)), wanted, {})
        return lambda function: self._register(str(wanted or getattr(function, "__name__", "")), function, options)

    def _register(self, wanted: str, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any, Any]:
        for key in ("on_success", "on_dead"):
            if not isinstance(options.get(key), (str, Task, NoneType)):
                raise InvalidArguments(f"{key} must be a task or its name, not {options[key]!r}")
        task: Task[..., Any, Any] = Task(self, name(wanted, "a task's name"), function, task_options(**options))
        for follow_up in (task.options.on_success, task.options.on_dead):
            self._follow_up(follow_up)  # what is wrong with one that is known by now is said here
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

    def _follow_up(self, task: Task[..., Any, Any] | str | None, argument: str = "finished") -> str | None:
        """What a row must carry to enqueue its follow-up without this app's code."""
        return None if task is None else follow_ups.packed(self.registry, task, argument)

    # --- opening and closing

    def store_options(self, **changes: Any) -> StoreOptions:
        """How this app opens its database."""
        settings = self.settings
        options = StoreOptions(
            pooler=settings.pooler,
            direct_url=settings.direct_url,
            transaction_seconds=max(1.0, settings.worker.heartbeat_seconds / 3),
            session_connections=settings.transactions.connections,
            session_patience=settings.transactions.wait_seconds,
            idle_seconds=settings.transactions.idle_seconds,
            statement_seconds=settings.transactions.statement_seconds,
            clock=self.clock,
        )
        return dataclasses.replace(options, **changes)

    def opened_store(self) -> Store | None:
        """The store of the running event loop if it is open already: nothing to wait for."""
        return self._stores.opened()

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

    async def open(self) -> Rowlock:
        """Open the database now, so that a wrong URL is found here."""
        await self.store()
        return self

    async def close(self) -> None:
        """Close the database; it opens again on the next use."""
        await self._stores.close()

    async def __aenter__(self) -> Rowlock:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def migrate(self) -> list[str]:
        """Apply missing migrations, Rowlock's and the app's own; answers their names."""
        store = await self._open(migrate=True)
        await store.close()
        return list(store.migrated)

    # --- enqueue

    async def enqueue(self, task: str, /, *args: Any, **arguments: Any) -> JobHandle[Any]:
        """Enqueue by name. A @handler class takes its parameters as one dictionary or as keywords."""
        return await self._enqueue_by_name(task, args, arguments, None)

    async def _enqueue_by_name(
        self,
        task: Task[..., Any, Any] | Bound[..., Any] | str,
        args: tuple[Any, ...],
        arguments: Mapping[str, Any],
        under: tuple[str, str] | None,
    ) -> JobHandle[Any]:
        if isinstance(task, str):
            task = self.registry.get(task)
        bound = task if isinstance(task, Bound) else task.using()
        return await bound._enqueue(args, arguments, under)

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this app from sync code, with or without an event loop running in this thread."""
        if joined(self) is not None:
            work.close()
            raise InvalidArguments("inside a transaction of the app, await it: its connection is not this thread's")
        return self._portal.run(work)

    # --- transactions, reading, repairing

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Your SQL and enqueues that commit together; an enqueue inside joins by itself."""
        around = joined(self)
        if around is not None:  # inside of another: part of it, and undone with it
            async with around.savepoint() as part:
                yield part
            return
        async with (await self.store()).transaction() as session, joining(self, session):
            yield session

    async def fetch(self, sql: str, *args: Any) -> list[Sequence[Any]]:
        """Rows of your own query, which may not write. Inside of `transaction()` it is part of it; outside, on SQLite,
        it waits for nobody who writes."""
        return await (await self._here()).fetch(sql, *args)

    async def _here(self) -> Store | Session:
        """Where what is read or changed now belongs: the transaction around it, if there is one."""
        return joined(self) or await self.store()

    async def attempts(self, job_id: str) -> list[Attempt]:
        """The attempts of a job that did not succeed, in order."""
        return await (await self._here()).run(reads.attempts(_id(job_id)))

    async def job(self, job_id: str) -> JobHandle[Any]:
        """Read one job; JobNotFound when there is none."""
        row = await (await self._here()).run(reads.get(_id(job_id)))
        if row is None:
            raise JobNotFound(str(job_id))
        return JobHandle(self, row.id, row, self.registry.all().get(row.task), created=False)

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
        """The newest jobs that fit, newest first. For the next page give the last one's id as `before`."""
        wanted = reads.JobFilter(_states(state), task, queue, owner, source, tag, since, until)
        rows = await (await self._here()).run(reads.list_jobs(wanted, at_most(limit), before))
        known = self.registry.all()
        return [JobHandle(self, row.id, row, known.get(row.task), created=False) for row in rows]

    async def stats(self) -> reads.Stats:
        """How queues, workers and the last minutes stand."""
        return await (await self._here()).run(reads.stats())

    async def cancel(self, job_id: str) -> str:
        """Cancel a job: `cancelled` at once when it waits, `cancelling` when it runs; a finished one is NotAllowed.
        Inside of `transaction()` it is part of it."""
        answer = (await (await self._here()).run(jobs.cancel([_id(job_id)], self.keep)))[_id(job_id)]
        if answer == "missing":
            raise JobNotFound(str(job_id))
        if answer == "final":
            raise NotAllowed(f"job {job_id} has already finished; nothing to cancel")
        return answer

    async def retry(self, job_id: str, *, tries: int = 1) -> JobHandle[Any]:
        """Put a dead or cancelled job back with `tries` more tries; its id, attempt and history stay."""
        store = await self._here()
        if not await store.run(jobs.retry([_id(job_id)], tries)):
            row = await store.run(reads.get(_id(job_id)))
            if row is None:
                raise JobNotFound(str(job_id))
            if row.state in (State.DEAD, State.CANCELLED):
                raise NotAllowed(f"job {job_id} cannot be retried: its key is held by a newer job")
            raise NotAllowed(f"job {job_id} is {row.state}; only dead and cancelled jobs can be retried")
        return await self.job(job_id)

    async def claim(
        self, job_id: str, *, worker: str | None = None, lease_seconds: float | timedelta | None = None
    ) -> Lease | None:
        """Claim one job by hand, for a loop of your own; None when it cannot be claimed now (somebody has it, it waits
        for its time, its queue is paused). Workers need none of this."""
        from rowlock.work.lease import claim_by_hand

        return await claim_by_hand(self, _id(job_id), worker, lease_seconds)

    # --- batches

    def batch(
        self, name: str, *, owner: str | None = None, on_end: Task[..., Any, Any] | str | None = None
    ) -> AbstractAsyncContextManager[Batch]:
        """A block that collects jobs (`task.using(batch=batch)`); sealed when it ends, cancelled when it raises.
        `on_end` is enqueued once, when all of them are final."""
        if on_end is not None and not isinstance(on_end, (str, Task)):
            raise InvalidArguments(f"on_end must be a task or its name, not {on_end!r}")
        return collecting(self, name, owner, on_end)

    async def find_batch(self, batch_id: str) -> Batch:
        """A batch by its id."""
        row = await (await self._here()).run(batches.get(str(batch_id)))
        if row is None:
            raise BatchNotFound(str(batch_id))
        return Batch(self, row.id, row.name, row.owner, row)

    async def explain(self, job_id: str) -> Explanation:
        """Why a job is not running, and what it waits for."""
        found = await (await self._here()).run(explain(_id(job_id)))
        if found is None:
            raise JobNotFound(str(job_id))
        return found

    # --- workers

    @asynccontextmanager
    async def worker(self, **changes: Any) -> AsyncIterator[WorkerPool]:
        """A worker in this process, for tests and embedding; stopped gracefully when the block ends."""
        from rowlock.work.pool import WorkerPool

        pool = WorkerPool(self, **changes)
        await pool.start()
        try:
            yield pool
        finally:
            await pool.stop()

    @asynccontextmanager
    async def dispatcher(self) -> AsyncIterator[Dispatcher]:
        """A dispatcher in this process: fires the ticks of schedules. Any number may run."""
        from rowlock.work.dispatcher import Dispatcher

        dispatcher = Dispatcher(self)
        await dispatcher.start()
        try:
            yield dispatcher
        finally:
            await dispatcher.stop()

    async def run_dispatcher(self) -> None:
        """Fire ticks until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT; or until cancelled)."""
        from rowlock.work.lifecycle import run_dispatcher

        await run_dispatcher(self)

    async def run_worker(self, **changes: Any) -> None:
        """Work until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT; or until cancelled)."""
        from rowlock.work.lifecycle import run_worker

        await run_worker(self, **changes)

    def _loose_context(self, task: str) -> Context:
        """The context of a plain call, outside of any job."""
        nobody = Claimed(
            id="", task=task, queue="", priority=0, args="{}", owner=None, source=None, source_epoch=None,
            batch_id=None, unique_mode=None, attempt=1, max_attempts=1, releases=0, losses=0, convictions=0,
            backoff=None, timeout_seconds=None, on_success=None, on_dead=None, on_lost=None, cancel_requested=False,
            token="", worker="",
        )  # fmt: skip
        return Context(None, nobody)


def _states(given: State | str | Sequence[State | str]) -> tuple[State, ...]:
    try:
        return tuple(State(state) for state in ((given,) if isinstance(given, str) else given))
    except (TypeError, ValueError):
        raise InvalidArguments(f"state must be one or more of {', '.join(State)}, not {given!r}") from None


def _id(text: Any) -> str:
    job_id = valid_id(str(text))
    if job_id is None:
        raise JobNotFound(str(text))
    return job_id
