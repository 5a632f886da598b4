"""Schedules of an app: from its code, from its config, and by hand while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.core.errors import InvalidArguments, ScheduleNotFound, TaskNotFound, at_most
from rowlock.core.schedule import Schedule, check_schedule, life, span
from rowlock.store import schedules
from rowlock.store.operation import Operation
from rowlock.store.schedules import ScheduleRow
from rowlock.work.options import attempts, name, priority, source_name, text_or_none

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.handle import JobHandle
    from rowlock.work.tasks import Task

T = TypeVar("T")


def schedule_of(app: Rowlock, wanted: str, task: Task[..., Any, Any] | str, given: Mapping[str, Any]) -> Schedule:
    """A checked definition. Where a task is known here, its own options are the defaults, and its arguments are
    checked."""
    rule, missed = check_schedule(wanted, given)
    known = _known(app, wanted, task) if isinstance(task, str) else task
    options = known.options if known is not None else None
    tries = given.get("max_attempts", options.max_attempts if options else 5)
    if given.get("max_retry") is not None:
        tries = given["max_retry"] + 1  # the first run is not a retry
    timeout = given.get("timeout", given.get("timeout_seconds", options.timeout if options else None))
    jitter = given.get("jitter", 0)
    try:
        text, source = _packed(known, _arguments(given))
        starts_at, ends_at = life(given)
        return Schedule(
            id=name(wanted, "a schedule's name"),
            task=known.name if known is not None else name(task, "a task's name"),
            rule=rule,
            args=text,
            missed=missed,
            overlap=given.get("overlap", "allow"),
            jitter=span(jitter, "jitter"),
            starts_at=starts_at,
            ends_at=ends_at,
            queue=name(given.get("queue", options.queue if options else "default"), "queue"),
            priority=priority(given.get("priority", options.priority if options else 0)),
            owner=text_or_none(given.get("owner"), "owner"),
            source=source_name(given.get("source", source)),
            max_attempts=attempts(tries),
            backoff=options.backoff.to_json() if options and options.backoff else None,
            timeout_seconds=None if timeout is None else span(timeout, "timeout"),
            on_success=app._follow_up(options.on_success) if options else None,
            on_dead=app._follow_up(options.on_dead) if options else None,
            on_lost="dead" if options and options.on_lost == "dead" else None,
            keep_seconds=options.keep if options else None,
        )
    except InvalidArguments as error:
        if str(error).startswith("schedule "):
            raise
        raise InvalidArguments(f"schedule {wanted!r}: {error}") from None


def _known(app: Rowlock, wanted: str, task: str) -> Task[..., Any, Any] | None:
    """The task of that name. An app without any code, such as that of a bare `rowlock dispatch`, cannot say."""
    if not app.registry.all():
        return None
    try:
        return app.registry.get(task)
    except TaskNotFound as error:
        raise InvalidArguments(f"schedule {wanted!r}: {error}") from None


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    args: Any = next((given[key] for key in ("args", "handler_params") if given.get(key) is not None), {})
    if not isinstance(args, Mapping) or not all(isinstance(key, str) for key in args):
        raise InvalidArguments(f"args must be a mapping of argument names to values, not {args!r:.60}")
    return dict(args)


def _packed(task: Task[..., Any, Any] | None, args: dict[str, Any]) -> tuple[str, str | None]:
    from rowlock.work.arguments import RawArguments
    from rowlock.work.tasks import _derived

    if task is None:
        return RawArguments("?").pack((args,), {}), None
    text = (
        task.arguments.pack((args,), {}) if isinstance(task.arguments, RawArguments) else task.arguments.pack((), args)
    )
    source = task.options.source
    return text, _derived(task, text, source, "source") if callable(source) else source


def _possible(wanted: str) -> str:
    """A name that a schedule can have; the database may not even be asked for another one."""
    try:
        return name(wanted, "a schedule's name")
    except InvalidArguments:
        raise ScheduleNotFound(wanted) from None


class Schedules:
    """The schedules of one app, and those of its database. Inside of `app.transaction()` all of this is part of it."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._code: dict[str, Callable[[], Schedule]] = {}

    def declare(self, wanted: str, make: Callable[[], Schedule]) -> None:
        """Remember a schedule of the code. It is made, and checked again, when a dispatcher starts, because its task's
        follow-ups may be registered later."""
        if wanted in self._code:
            raise InvalidArguments(f"two schedules are named {wanted!r}; give one of them a name")
        make()
        self._code[wanted] = make

    def in_code(self) -> list[Schedule]:
        """What the code declares."""
        return [make() for make in self._code.values()]

    def in_config(self, refused: Callable[[Exception], None]) -> list[Schedule]:
        """What the config declares. One that is wrong is refused; the others go on."""
        found = []
        for wanted, given in self._app.settings.schedules.items():
            options = dict(given)
            tasks = [options.pop(key) for key in ("task", "handler_name") if key in options]
            try:
                if len(tasks) > 1:
                    raise InvalidArguments(f"schedule {wanted!r}: give task or handler_name, not both")
                found.append(schedule_of(self._app, wanted, tasks[0], options))
            except InvalidArguments as error:
                refused(error)
        return found

    async def _run(self, op: Operation[T]) -> T:
        return await (await self._app._here()).run(op)

    async def add(self, wanted: str, task: Task[..., Any, Any] | str, /, **given: Any) -> ScheduleRow:
        """Add a schedule while the app runs, or change one that was added so."""
        schedule = schedule_of(self._app, wanted, task, given)
        declared = await self._run(schedules.declare([schedule], "runtime", None))
        for there in declared.refused.values():
            raise InvalidArguments(f"schedule {wanted!r} comes from the {there}: change it there, or take another name")
        return await self.get(wanted)

    async def get(self, wanted: str) -> ScheduleRow:
        """One schedule."""
        found = await self._run(schedules.schedules(1, only=_possible(wanted)))
        if not found:
            raise ScheduleNotFound(wanted)
        return found[0]

    async def next(self, wanted: str, n: int = 3) -> list[datetime]:
        """The next ticks of a schedule, by the database's clock."""
        return (await self.get(wanted)).coming(None, n)

    async def run(self, wanted: str) -> JobHandle[Any]:
        """Fire a schedule now, beside its ticks."""
        job_id = await self._run(schedules.run_now(_possible(wanted)))
        return await self._app.job(job_id)

    async def pause(self, wanted: str) -> ScheduleRow:
        """No more ticks until it is resumed."""
        await self._run(schedules.pause(_possible(wanted)))
        return await self.get(wanted)

    async def resume(self, wanted: str) -> ScheduleRow:
        """Ticks again, from now on; what was owed already when it was paused fires now."""
        await self._run(schedules.resume(_possible(wanted)))
        return await self.get(wanted)

    async def remove(self, wanted: str) -> None:
        """Forget a schedule that was added by hand, or one that is retired."""
        await self._run(schedules.remove(_possible(wanted)))

    async def list(self, limit: int = 1000, *, after: str = "") -> list[ScheduleRow]:
        """Schedules by name."""
        return await self._run(schedules.schedules(at_most(limit), after))
