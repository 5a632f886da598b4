"""Creates jobs: the row of each, and its insert in a new transaction, in the one around it, or on the caller's
connection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rowlock.client.handles.job import Fresh, JobHandle, ResultType
from rowlock.client.tasks.arguments import Arguments, RawArguments
from rowlock.client.transactions import LeaseKey, joined, joined_lease
from rowlock.core.errors import InvalidArguments
from rowlock.core.job import Job, NewJob
from rowlock.core.option_checks import key_text
from rowlock.core.sources.policy import check_name
from rowlock.store.engine import callers_connection
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Runs
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.insert import NewRow
from rowlock.store.read import job_rows

if TYPE_CHECKING:
    from rowlock.client.client import Client

MOST_COUNTED = 100  # pairs of queue and task; the jobs of all others are counted under `other`
OTHER = ("other", "other")


async def enqueue_one(
    app: Client,
    row: NewRow,
    new: NewJob,
    result_type: ResultType,
    connection: Any = None,
    must_hold: LeaseKey | None = None,
    in_span: bool = False,
) -> JobHandle[Any]:
    """Create one job. `row` has an id only if the caller chose one. `must_hold` is the lease of the attempt that
    creates the job: LeaseLost is raised if that is lost. If traces are on, the enqueue is a span, which adds its
    traceparent to the options."""
    if app.traces is not None and not in_span:  # asked first: a `with` that does nothing takes 3 % of an enqueue
        with app.sending(new, 1) as new:
            return await enqueue_one(app, row, new, result_type, connection, must_hold, in_span=True)
    place = await app.place(connection)
    if must_hold is None and _is_one_insert(row, new):
        job_id = new_id()
        await place.run(enqueue.enqueue([(job_id, row.args)], new))
    else:
        lease = must_hold or (joined_lease(app) if connection is None else None)
        ((job_id, created),) = await place.run(_creation(row, new, lease, must_hold is not None))
        if not created:
            older = await place.run(job_rows.get(job_id))  # None if it was pruned: its id or key is still taken
            return JobHandle(app, job_id, older, result_type, created=False)
    app.enqueued.add(new.queue, new.task, 1)
    return JobHandle(app, job_id, (row.args, new, row.source), result_type)


def enqueue_one_sync(
    app: Client, row: NewRow, new: NewJob, result_type: ResultType, connection: Any = None
) -> JobHandle[Any]:
    if connection is None:
        if joined(app) is not None:
            raise InvalidArguments(
                "inside a transaction of the app, await enqueue(): its connection is not this thread's"
            )
        return app.run_sync(enqueue_one(app, row, new, result_type))
    with app.sending(new, 1) as new:
        if _is_one_insert(row, new):
            job_id = new_id()
            callers_connection.run_on_sync(connection, enqueue.enqueue([(job_id, row.args)], new), app.clock)
        else:
            ((job_id, created),) = callers_connection.run_on_sync(connection, _creation(row, new), app.clock)
            if not created:
                older = callers_connection.run_on_sync(connection, job_rows.get(job_id), app.clock)
                return JobHandle(app, job_id, older, result_type, created=False)
        app.enqueued.add(new.queue, new.task, 1)
        return JobHandle(app, job_id, (row.args, new, row.source), result_type)


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


async def enqueue_many(
    app: Client, rows: list[NewRow], new: NewJob, result_type: ResultType, connection: Any = None
) -> list[JobHandle[Any]]:
    """Create many jobs that share their options, all or none, in the order given."""
    if not rows:
        return []
    with app.sending(new, len(rows)) as new:
        return await _enqueue_many(app, await app.place(connection), rows, new, result_type)


async def _enqueue_many(
    app: Client, place: Runs, rows: list[NewRow], new: NewJob, result_type: ResultType
) -> list[JobHandle[Any]]:
    if new.unique is None and new.batch_id is None and all(row.source == new.source for row in rows):
        alike = [(new_id(), row.args) for row in rows]
        await place.run(enqueue.enqueue(alike, new))
        app.enqueued.add(new.queue, new.task, len(alike))
        return [JobHandle(app, job_id, (args, new, new.source), result_type) for job_id, args in alike]
    rows = [row._replace(id=new_id()) for row in rows]
    found = await place.run(enqueue.enqueue_rows(rows, new, joined_lease(app)))
    app.enqueued.add(new.queue, new.task, sum(created for _, created in found))
    shown: dict[str, Job | Fresh] = {row.id: (row.args, new, row.source) for row in rows}
    if older := sorted({job_id for job_id, _ in found} - shown.keys()):
        shown |= {job.id: job for job in await place.run(job_rows.by_ids(older))}
    return [JobHandle(app, job_id, shown.get(job_id), result_type, created) for job_id, created in found]


def rows_of_many(
    task: str, given: Sequence[Mapping[str, Any]], arguments: Arguments | RawArguments, key: Any, source: Any
) -> list[NewRow]:
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
                rows.append(NewRow("", arguments.pack((), kwargs), None, source))
                continue
            text, seen = arguments.pack_seen(kwargs)
            own = None if key is None else derived_key(task, key, seen)
            rows.append(NewRow("", text, own, derived_source(task, source, seen) if callable(source) else source))
        except InvalidArguments as error:
            raise InvalidArguments(f"item {number}: {error}") from None
    return rows


def _has_names(arguments: Mapping[Any, Any]) -> bool:
    return {str}.issuperset(map(type, arguments)) or all(isinstance(name, str) for name in arguments)


def derived_key(task: str, function: Any, arguments: dict[str, Any]) -> str:
    """The key that a function derives from a job's arguments."""
    return key_text(_derived(task, "key", function, arguments))


def derived_source(task: str, function: Any, arguments: dict[str, Any]) -> str | None:
    """The source that a function derives from a job's arguments."""
    found = _derived(task, "source", function, arguments)
    return None if found is None else check_name(found)


def _derived(task: str, what: str, function: Any, arguments: dict[str, Any]) -> Any:
    """What the function answers; it gets the arguments that it names."""
    try:
        names = _parameter_names(function)
    except (TypeError, ValueError):  # `str` has no signature; an object that cannot be hashed
        must = "must be a function whose arguments have names"
        raise InvalidArguments(f"task {task!r}: its {what} {must}, not {function!r:.100}") from None
    if names is not None:
        arguments = {name: arguments[name] for name in names if name in arguments}
    try:
        return function(**arguments)
    except Exception as error:
        raise InvalidArguments(f"task {task!r}: its {what} cannot be derived from the arguments: {error!r}") from error


@lru_cache(maxsize=1000)
def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The parameter names of a function; None if it has **kwargs. Cached, because enqueue_many asks for every job."""
    parameters = inspect.signature(function).parameters.values()
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters) else tuple(p.name for p in parameters)


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
