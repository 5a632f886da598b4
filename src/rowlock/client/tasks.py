"""Tasks: your functions, registered under a name, with the options that their jobs get."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import Any, Generic, ParamSpec, Self, TypeAlias, TypeVar

from pydantic import TypeAdapter

from rowlock.client.arguments import Arguments, RawArguments, hints_of
from rowlock.client.batch import Batch
from rowlock.client.context import Context, loose_context
from rowlock.client.database import Database
from rowlock.client.enqueue import enqueue_many, enqueue_one, enqueue_one_sync
from rowlock.client.handle import JobHandle, Result
from rowlock.client.transactions import LeaseKey, parent_in
from rowlock.core.errors import ConfigError, InvalidArguments
from rowlock.core.job import NewJob
from rowlock.core.option_checks import key_text
from rowlock.core.options import FOLLOW_UPS, RunsIn, TaskOptions, Unique, checked
from rowlock.core.remote import check_arguments
from rowlock.core.source import check_name
from rowlock.store.adding import NewRow
from rowlock.store.ids import valid_id

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")  # what calling the task as a function returns: R, or a coroutine of R
Pack = Callable[[Any, str], str]  # a follow-up as text for a row; the second is the name of its one argument
OF_ONE_CALL = ("key", "job_id", "connection")  # arguments of `using` that are for one enqueue only


class Task(Generic[P, R, C]):
    """A registered task. `task(…)` runs the function here; `await task.enqueue(…)` creates a job."""

    def __init__(
        self,
        app: Database,
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
        self.result_type: Result = None if raw else _result_type(function)
        if options.request is not None and not raw:
            check_arguments(name, options.request, self.arguments.names)
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
        row, new = self._job(args, kwargs)
        return await enqueue_one(self.app, row, new, self.result_type, self._given.get("connection"))

    async def enqueue_under(self, job_id: str, lease: LeaseKey | None, arguments: Mapping[str, Any]) -> JobHandle[R]:
        """Create a job on behalf of the running attempt of a job; raises LeaseLost if `lease`, which is that attempt's,
        was lost."""
        row, new = self._job((), arguments, job_id)
        return await enqueue_one(self.app, row, new, self.result_type, self._given.get("connection"), lease)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop."""
        row, new = self._job(args, kwargs)
        return enqueue_one_sync(self.app, row, new, self.result_type, self._given.get("connection"))

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Create many jobs in one statement: all of them, or none if there is an error."""
        if self._given.get("job_id"):
            raise InvalidArguments("job_id= is the id of a single job; enqueue_many cannot use it")
        self._check_it_can_run()
        source, key = self._source, self._given.get("key")
        if key is not None and not callable(key):
            key_text(key)
            raise InvalidArguments(
                "enqueue_many needs key= as a function of the arguments:"
                " one fixed key would make all jobs but the first duplicates"
            )
        new = _child(self.shared(), parent_in(self.app))
        derives = callable(source) or key is not None
        rows: list[NewRow] = []
        for number, kwargs in enumerate(arguments):
            try:
                if not isinstance(kwargs, Mapping) or not _named(kwargs):
                    raise InvalidArguments(f"must be a mapping of argument names, not {kwargs!r:.100}")
                if not derives:
                    rows.append(NewRow("", self.arguments.pack((), kwargs), None, new.source))
                    continue
                text, seen = self.arguments.pack_seen(kwargs)
                own = None if key is None else key_text(self._derived(key, "key", seen))
                rows.append(NewRow("", text, own, self._source_of(source, seen) if callable(source) else new.source))
            except InvalidArguments as error:
                raise InvalidArguments(f"item {number}: {error}") from None
        return await enqueue_many(self.app, rows, new, self.result_type, self._given.get("connection"))

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
        """A new job: its own row (with an id only if `using` gave one), and the options that it shares with others."""
        self._check_it_can_run()
        text = self.arguments.pack(args, kwargs)
        new, source = _child(self.shared(), parent or parent_in(self.app)), self._source
        if callable(source):
            found = self._source_of(source, self.arguments.with_defaults(text))
            new = dataclasses.replace(new, source=found)
        key = self._given.get("key")
        if callable(key):
            key = self._derived(key, "key", self.arguments.with_defaults(text))
        return NewRow(self._job_id(), text, key_text(key) if "key" in self._given else None, new.source), new

    def _check_it_can_run(self) -> None:
        """Refuse to enqueue a job for Redis while no Redis is configured: no bridge would ever publish it."""
        if self.options.runs_on is None:
            return
        if self.app.settings.redis.url is None:
            raise ConfigError(
                f"task {self.name!r} runs on Redis, and no Redis is configured: set redis.url in the config file"
                " or ROWLOCK_REDIS__URL"
            )
        if self._given.get("timeout") is not None:
            raise InvalidArguments(f"timeout= is not supported behind Redis: task {self.name!r} has runs_on='redis'")

    def _job_id(self) -> str:
        given = self._given.get("job_id")
        if given is None:
            return ""
        if (job_id := valid_id(given)) is None:
            raise InvalidArguments(f"job_id must be a UUID, not {given!r} (uuid.uuid5 makes one from any name)")
        return job_id

    def shared(self) -> NewJob:
        """The options that all jobs of this task share. A source that is derived from the arguments is None here."""
        if self._shared is not None:
            return self._shared
        values = self.chosen()
        if callable(values["source"]):
            values["source"] = None
        followed = False
        for way in FOLLOW_UPS:
            if values[way] is not None:
                followed, values[way] = True, self._pack(values[way], "finished")
        new = NewJob(self.name, **values)
        if not followed:  # not kept with follow-ups: their tasks may be registered later
            self._shared = new
        return new

    def chosen(self, fixed_place: str | None = None) -> dict[str, Any]:
        """The options of this task's jobs by field: those given with `using`, else the task's own.

        `fixed_place` is given when the options are stored for later jobs (by a schedule, say), and names that place in
        errors; options that make sense for a single enqueue only, such as `job_id`, are then refused.
        """
        given = dict(self._given)
        of_one_call = {name: given.pop(name) for name in OF_ONE_CALL if name in given}
        if fixed_place is not None:
            for refused in ("batch", *OF_ONE_CALL):
                if refused in self._given:
                    raise InvalidArguments(f"{fixed_place}: using({refused}=…) is for one enqueue only")
        if "unique" in given and "key" not in of_one_call:
            raise InvalidArguments("unique= says how long a key is held: give key= as well")
        values = self.options.of_jobs() | checked("using", given)
        if "key" in of_one_call and values["unique"] is None:
            values["unique"] = "until_done"
        return values

    def _source_of(self, function: Any, arguments: dict[str, Any]) -> str | None:
        found = self._derived(function, "source", arguments)
        return None if found is None else check_name(found)

    def _derived(self, function: Any, what: str, arguments: dict[str, Any]) -> Any:
        """Call a function that derives a key or source from a job's arguments; it gets the arguments that it names."""
        try:
            names = _names(function)
        except (TypeError, ValueError):  # `str` has no signature; an object that cannot be hashed
            must = "must be a function whose arguments have names"
            raise InvalidArguments(f"task {self.name!r}: its {what} {must}, not {function!r:.100}") from None
        if names is not None:
            arguments = {name: arguments[name] for name in names if name in arguments}
        try:
            return function(**arguments)
        except Exception as error:
            raise InvalidArguments(
                f"task {self.name!r}: its {what} cannot be derived from the arguments: {error!r}"
            ) from error

    def source_for(self, text: str) -> str | None:
        """The source of a job whose arguments are this JSON text."""
        source = self._source
        return self._source_of(source, self.arguments.with_defaults(text)) if callable(source) else source


def _child(new: NewJob, parent: str | None) -> NewJob:
    """The options of a job that this parent makes, if there is one."""
    return new if parent is None else dataclasses.replace(new, parent_id=parent)


AsyncTask: TypeAlias = Task[P, R, Coroutine[Any, Any, R]]


def _named(arguments: Mapping[Any, Any]) -> bool:
    return {str}.issuperset(map(type, arguments)) or all(isinstance(name, str) for name in arguments)


@lru_cache(maxsize=1000)
def _names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The parameter names of a function; None if it has **kwargs. Cached, because enqueue_many asks for every job."""
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
    """Converts a stored JSON result to the annotated return type; None if JSON values need no conversion."""
    annotation = hints_of(function).get("return", Any)
    if annotation in (Any, None, NoneType, dict, list, str, int, float, bool):
        return None
    try:
        return TypeAdapter(annotation)
    except Exception:  # not a type that pydantic knows: the JSON value is returned as it is
        return None
