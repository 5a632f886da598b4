"""Tasks: your functions, registered under a name, with the options that their jobs get, and `enqueue`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from pydantic import TypeAdapter

from rowlock.client.context import Context, loose_context
from rowlock.client.handles.batch import Batch
from rowlock.client.handles.job import Fresh, JobHandle, ResultType
from rowlock.client.tasks.arguments import Arguments, RawArguments, derived_key, derived_source, hints_of
from rowlock.client.transactions import LeaseKey, joined, joined_lease, parent_in
from rowlock.core.errors import ConfigError, InvalidArguments
from rowlock.core.job import Job, NewJob
from rowlock.core.option_checks import OWN, key_text, task_name
from rowlock.core.options import FOLLOW_UPS, RunsIn, TaskOptions, Unique, checked
from rowlock.core.redis_request import check_arguments
from rowlock.store.engine import callers_connection
from rowlock.store.engine.ids import new_id, valid_id
from rowlock.store.engine.operation import Operation
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.enqueue import NewRow
from rowlock.store.read import job_rows

if TYPE_CHECKING:
    from rowlock.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")  # what calling the task as a function returns: R, or a coroutine of R
# Makes the text of a follow-up that a job's row carries, from its task and the name of the one argument that it takes.
Pack = Callable[[Any, str], str]
OF_ONE_CALL = ("key", "job_id", "connection")  # arguments of `using` that are for one enqueue only
MOST_COUNTED = 100  # pairs of queue and task; the jobs of all others are counted under `other`
OTHER = ("other", "other")


class Task(Generic[P, R, C]):
    """A registered task. `task(…)` runs the function here; `await task.enqueue(…)` creates a job."""

    def __init__(
        self,
        app: Client,
        pack: Pack,
        name: str,
        function: Callable[..., Any],
        options: TaskOptions,
        raw: bool = False,
    ) -> None:
        if not inspect.isroutine(function):
            raise InvalidArguments(f"task {name!r} must be a function, not {function!r}")
        self.app, self._pack = app, pack
        self.name, self.function, self.options = name, function, options
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
        self.result_type: ResultType = None if raw else _result_type(function)
        if options.request is not None and not raw:
            check_arguments(name, options.request, self.arguments.names)
        self._is_own = name.startswith(OWN)  # a task of Rowlock itself, which programs cannot enqueue
        self._given: Mapping[str, Any] = {}  # options given with `using`
        self._shared: NewJob | None = None

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function directly, without creating a job."""
        if self.takes_context:
            return self.function(loose_context(self.name), *args, **kwargs)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

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
        traceparent: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        job_id: str | None = None,
        connection: Any = None,
    ) -> Self:
        """A copy of this task with other options; they are checked when a job is created. `key` may be a function that
        derives each job's key from its arguments."""
        given = {key: value for key, value in locals().items() if key != "self" and value is not None}
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _given={**self._given, **given}, _shared=None)
        return other

    # --- enqueue

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Create a job with these arguments. On return it is committed, or part of the transaction that is open."""
        return await self._create(*self._job(args, kwargs))

    async def enqueue_under(self, job_id: str, lease: LeaseKey | None, arguments: Mapping[str, Any]) -> JobHandle[R]:
        """Create a job as a child of the running job `job_id`. `lease` is that of the job's attempt, or None if the
        enqueue joins a transaction: LeaseLost is raised if it is lost."""
        row, new = self._job((), arguments, job_id)
        return await self._create(row, new, lease)

    async def _create(
        self, row: NewRow, new: NewJob, must_hold: LeaseKey | None = None, in_span: bool = False
    ) -> JobHandle[R]:
        """Create one job: on the connection that `using` gave, in the transaction that the code is in, or in a new one.
        `must_hold` is the lease of the attempt that creates the job: LeaseLost is raised if that is lost. If traces are
        on, the enqueue is a span, which adds its traceparent to the options."""
        app, connection = self.app, self._given.get("connection")
        if app.traces is not None and not in_span:  # asked first: a `with` that does nothing takes 3 % of an enqueue
            with app.sending(new, 1) as new:
                return await self._create(row, new, must_hold, in_span=True)
        place = await app.place(connection)
        if must_hold is None and _is_one_insert(row, new):
            job_id = new_id()
            await place.run(enqueue.enqueue([(job_id, row.args)], new))
        else:
            lease = must_hold or (joined_lease(app) if connection is None else None)
            ((job_id, created),) = await place.run(_creation(row, new, lease, must_hold is not None))
            if not created:
                older = await place.run(job_rows.get(job_id))  # None if it was pruned: its id or key is still taken
                return JobHandle(app, job_id, older, self.result_type, created=False)
        app.enqueued.add(new.queue, new.task, 1)
        return JobHandle(app, job_id, (row.args, new, row.source), self.result_type)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop."""
        row, new = self._job(args, kwargs)
        app, connection = self.app, self._given.get("connection")
        if connection is None:
            if joined(app) is not None:
                raise InvalidArguments(
                    "inside a transaction of the app, await enqueue(): its connection is not this thread's"
                )
            return app.run_sync(self._create(row, new))
        with app.sending(new, 1) as new:
            if _is_one_insert(row, new):
                job_id = new_id()
                callers_connection.run_on_sync(connection, enqueue.enqueue([(job_id, row.args)], new), app.clock)
            else:
                ((job_id, created),) = callers_connection.run_on_sync(connection, _creation(row, new), app.clock)
                if not created:
                    older = callers_connection.run_on_sync(connection, job_rows.get(job_id), app.clock)
                    return JobHandle(app, job_id, older, self.result_type, created=False)
            app.enqueued.add(new.queue, new.task, 1)
            return JobHandle(app, job_id, (row.args, new, row.source), self.result_type)

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Create many jobs in one statement: all of them, or none if there is an error."""
        if self._given.get("job_id"):
            raise InvalidArguments("job_id= is the id of a single job; enqueue_many cannot use it")
        self._check_enqueueable()
        app, new = self.app, _child(self.shared(), parent_in(self.app))
        rows = self._rows(arguments, self._given.get("key"), self._source if callable(self._source) else new.source)
        if not rows:
            return []
        with app.sending(new, len(rows)) as new:
            place = await app.place(self._given.get("connection"))
            if new.unique is None and new.batch_id is None and all(row.source == new.source for row in rows):
                alike = [(new_id(), row.args) for row in rows]
                await place.run(enqueue.enqueue(alike, new))
                app.enqueued.add(new.queue, new.task, len(alike))
                return [JobHandle(app, job_id, (args, new, new.source), self.result_type) for job_id, args in alike]
            rows = [row._replace(id=new_id()) for row in rows]
            found = await place.run(enqueue.enqueue_rows(rows, new, joined_lease(app)))
            app.enqueued.add(new.queue, new.task, sum(created for _, created in found))
            shown: dict[str, Job | Fresh] = {row.id: (row.args, new, row.source) for row in rows}
            if older := sorted({job_id for job_id, _ in found} - shown.keys()):
                shown |= {job.id: job for job in await place.run(job_rows.by_ids(older))}
            return [JobHandle(app, job_id, shown.get(job_id), self.result_type, created) for job_id, created in found]

    def _rows(self, given: Sequence[Mapping[str, Any]], key: Any, source: Any) -> list[NewRow]:
        """The rows of many jobs, one for each mapping of arguments; `key` and `source` may be functions of these."""
        if key is not None and not callable(key):
            key_text(key)
            raise InvalidArguments(
                "enqueue_many needs key= as a function of the arguments:"
                " one fixed key would make all jobs but the first duplicates"
            )
        derives = callable(source) or key is not None
        rows: list[NewRow] = []
        for number, kwargs in enumerate(given):
            try:
                if not isinstance(kwargs, Mapping) or not _has_names(kwargs):
                    raise InvalidArguments(f"must be a mapping of argument names, not {kwargs!r:.100}")
                if not derives:
                    rows.append(NewRow("", self.arguments.pack((), kwargs), None, source))
                    continue
                text, seen = self.arguments.pack_seen(kwargs)
                own_key = None if key is None else derived_key(self.name, key, seen)
                own_source = derived_source(self.name, source, seen) if callable(source) else source
                rows.append(NewRow("", text, own_key, own_source))
            except InvalidArguments as error:
                raise InvalidArguments(f"item {number}: {error}") from None
        return rows

    def _check_enqueueable(self) -> None:
        """Refuse a task of Rowlock itself, and a job for Redis that no bridge would ever publish."""
        if self._is_own:
            task_name(self.name, "the task to enqueue")
        if self.options.runs_on is None:
            return
        if self.app.settings.redis.url is None:
            raise ConfigError(
                f"task {self.name!r} runs on Redis, and no Redis is configured: set redis.url in the config file"
                " or ROWLOCK_REDIS__URL"
            )
        if self._given.get("timeout") is not None:
            raise InvalidArguments(f"timeout= is not supported behind Redis: task {self.name!r} has runs_on='redis'")

    # --- options

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of the task's arguments, without `ctx`."""
        return self.arguments.names

    @property
    def _source(self) -> Any:
        """The source of this task's jobs, or the function that derives it from a job's arguments."""
        return self._given.get("source", self.options.source)

    def _job(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parent: str | None = None
    ) -> tuple[NewRow, NewJob]:
        """A new job in two parts: what is its own (arguments, key, source, and an id if `using` gave one), and the
        options that it shares with all jobs of the task."""
        if self._is_own or self.options.runs_on is not None:
            self._check_enqueueable()
        text, given = self.arguments.pack(args, kwargs), self._given
        new = _child(self._shared or self.shared(), parent or parent_in(self.app))
        if callable(given.get("source", self.options.source)):  # as `_source`, without a call for each enqueue
            new = dataclasses.replace(new, source=self.source_for(text))
        if not given:
            return NewRow("", text, None, new.source), new
        key = given.get("key")
        if callable(key):
            key = derived_key(self.name, key, self.arguments.with_defaults(text))
        elif key is not None:
            key = key_text(key)
        wanted = given.get("job_id")
        job_id = "" if wanted is None else valid_id(wanted)
        if job_id is None:
            raise InvalidArguments(f"job_id must be a UUID, not {wanted!r} (uuid.uuid5 makes one from any name)")
        return NewRow(job_id, text, key, new.source), new

    def shared(self) -> NewJob:
        """The options that all jobs of this task share. A source that is derived from the arguments is None here."""
        if self._shared is not None:
            return self._shared
        values = self.chosen()
        if callable(values["source"]):
            values["source"] = None
        followed = [option for option in FOLLOW_UPS if values[option] is not None]
        for option in followed:
            values[option] = self._pack(values[option], "finished")
        new = NewJob(self.name, **values)
        if not followed:  # not kept with follow-ups: their tasks may be registered later
            self._shared = new
        return new

    def chosen(self, fixed_place: str | None = None) -> dict[str, Any]:
        """The options of this task's jobs by field: those given with `using`, else the task's own.

        `fixed_place` is given when the options are stored for later jobs (by a schedule, say), and names that place in
        errors; options that make sense for a single enqueue only, such as `job_id`, are then refused.
        """
        rest = dict(self._given)
        of_one_call = {name: rest.pop(name) for name in OF_ONE_CALL if name in rest}
        if fixed_place is not None:
            for refused in ("batch", *OF_ONE_CALL):
                if refused in self._given:
                    raise InvalidArguments(f"{fixed_place}: using({refused}=…) is for one enqueue only")
        if "unique" in rest and "key" not in of_one_call:
            raise InvalidArguments("unique= says how long a key is held: give key= as well")
        values = self.options.of_jobs() | checked("using", rest)
        if "key" in of_one_call and values["unique"] is None:
            values["unique"] = "until_done"
        return values

    def source_for(self, text: str) -> str | None:
        """The source of a job whose arguments are this JSON text."""
        source = self._source
        return derived_source(self.name, source, self.arguments.with_defaults(text)) if callable(source) else source


def _child(new: NewJob, parent: str | None) -> NewJob:
    """The options of a job, with the job whose handler creates it as its parent, if there is one."""
    return new if parent is None else dataclasses.replace(new, parent_id=parent)


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    is_context = annotation is Context or (isinstance(annotation, str) and annotation.split(".")[-1] == "Context")
    return is_context or (parameters[0].name == "ctx" and annotation is inspect.Parameter.empty)


def _result_type(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """Converts a stored JSON result to the annotated return type; None if JSON values need no conversion."""
    annotation = hints_of(function).get("return", Any)
    if annotation in (Any, None, NoneType, dict, list, str, int, float, bool):
        return None
    try:
        return TypeAdapter(annotation)
    except Exception:  # not a type that pydantic knows: the JSON value is returned as it is
        return None


def _is_one_insert(row: NewRow, new: NewJob) -> bool:
    """Whether an INSERT is all that a new job needs: it has no id of the caller's, no key and no batch."""
    return not row.id and row.key is None and new.batch_id is None


def _creation(
    row: NewRow, new: NewJob, lease: LeaseKey | None = None, must_hold: bool = False
) -> Operation[list[enqueue.NewOrOlder]]:
    """The operation that creates a job for which an INSERT is not all."""
    if row.id:
        return enqueue.enqueue_once(row.id, row.args, new, row.key, lease, must_hold)
    return enqueue.enqueue_rows([row._replace(id=new_id())], new, lease, must_hold)


def _has_names(arguments: Mapping[Any, Any]) -> bool:
    return {str}.issuperset(map(type, arguments)) or all(isinstance(name, str) for name in arguments)


class Enqueued:
    """The number of jobs that this process has enqueued, for each queue and task; `/metrics` shows it."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, queue: str, task: str, number: int) -> None:
        """Count jobs that a statement has inserted. If its transaction is rolled back later, they stay counted."""
        key = (queue, task)
        if key not in self._counts and len(self._counts) >= MOST_COUNTED:
            key = OTHER
        self._counts[key] = self._counts.get(key, 0) + number

    def samples(self) -> Mapping[str, Iterable[Any]]:
        """The numbers now. Another thread may ask."""
        return {"rowlock_jobs_enqueued_total": sorted(self._counts.copy().items())}


AsyncTask: TypeAlias = Task[P, R, Coroutine[Any, Any, R]]


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
