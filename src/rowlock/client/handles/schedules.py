"""`app.schedules`: the schedules of an app, from its code, from its config, or added while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rowlock.client.handles.job import JobHandle
from rowlock.client.tasks.arguments import RawArguments
from rowlock.client.tasks.task import Task
from rowlock.core.errors import InvalidArguments, ScheduleNotFound, TaskNotFound, at_most
from rowlock.core.option_checks import name, task_name
from rowlock.core.options import FOLLOW_UPS, OPTIONS, TaskOptions
from rowlock.core.schedules.schedule import Schedule, checked_options, life, naming, rule_of, span
from rowlock.store.schedules import schedules
from rowlock.store.schedules.schedules import ScheduleRow

if TYPE_CHECKING:
    from rowlock.client.client import Client

FindTask = Callable[[str, str | None], Awaitable["Task[..., Any, Any] | str"]]


def schedule_of(app: Client, wanted: str, task: Task[..., Any, Any] | str, given: Mapping[str, Any]) -> Schedule:
    """A checked definition. Where a task is known here, its own options are the defaults, and its arguments are
    checked."""
    with naming(wanted):
        own = checked_options(given)
        rule, missed = rule_of(given)
        known = _known(app, task) if isinstance(task, str) else task
        text = (RawArguments("?") if known is None else known.arguments).pack((), _arguments(given))
        starts_at, ends_at = life(given)
        return Schedule(
            id=name(wanted, "a schedule's name"),
            task=task_name(known.name if known is not None else task, "a task's name"),
            rule=rule,
            args=text,
            missed=missed,
            overlap=given.get("overlap", "allow"),
            jitter=span(given.get("jitter", 0), "jitter"),
            starts_at=starts_at,
            ends_at=ends_at,
            **_of_task(app, known, text) | own,
        )


def _of_task(app: Client, task: Task[..., Any, Any] | None, text: str) -> dict[str, Any]:
    """The options of a task's jobs, by field. Some options of `using` cannot be given to the jobs of a schedule."""
    if task is None:
        return TaskOptions().of_jobs()
    values = task.chosen(f"task {task.name!r}")
    for option in OPTIONS.values():
        if not option.scheduled and values[option.name] != option.default:
            raise InvalidArguments(
                f"the jobs of a schedule cannot have the option {option.given!r}, which task {task.name!r} has"
            )
    follow_ups = {way: app.registry.packed(values[way], "finished") for way in FOLLOW_UPS if values[way] is not None}
    return values | follow_ups | {"source": task.source_for(text)}


def _known(app: Client, task: str) -> Task[..., Any, Any] | None:
    """The task of that name; None in an app without code, such as that of `rowlock dispatch` without --app."""
    if not app.registry.all():
        return None
    try:
        return app.registry.get(task)
    except TaskNotFound as error:
        raise InvalidArguments(str(error)) from None


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    args: Any = next((given[key] for key in ("args", "handler_params") if given.get(key) is not None), {})
    if not isinstance(args, Mapping) or not all(isinstance(key, str) for key in args):
        raise InvalidArguments(f"args must be a mapping of argument names to values, not {args!r:.60}")
    return dict(args)


def _possible(wanted: str) -> str:
    """The name, if it is valid for a schedule; the database cannot even be asked for others."""
    try:
        return name(wanted, "a schedule's name")
    except InvalidArguments:
        raise ScheduleNotFound(wanted) from None


class Schedules:
    """The schedules of an app and its database. Inside `app.transaction()`, every call is part of the transaction."""

    def __init__(self, app: Client) -> None:
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
        return [make() for make in self._code.values()]

    async def in_config(self, find: FindTask, refused: Callable[[Exception], None]) -> list[Schedule]:
        """The schedules of the config. A wrong one is left out, and `refused` is called with its error. `find` finds a
        task by its name and the source that its jobs are given."""
        found = []
        for wanted, given in self._app.settings.schedules.items():
            options = dict(given)
            tasks = [options.pop(key) for key in ("task", "handler_name") if key in options]
            try:
                with naming(wanted):
                    if len(tasks) > 1:
                        raise InvalidArguments("give task or handler_name, not both")
                    task = await find(tasks[0], options.get("source"))
                found.append(schedule_of(self._app, wanted, task, options))
            except InvalidArguments as error:
                refused(error)
        return found

    async def add(self, wanted: str, task: Task[..., Any, Any] | str, /, **given: Any) -> ScheduleRow:
        """Add a schedule while the app runs, or change one that was added this way."""
        schedule = schedule_of(self._app, wanted, task, given)
        declared = await self._app.perform(schedules.declare([schedule], "runtime", None))
        for there in declared.refused.values():
            raise InvalidArguments(f"schedule {wanted!r} comes from the {there}: change it there, or take another name")
        return await self.get(wanted)

    async def get(self, wanted: str) -> ScheduleRow:
        """The schedule of this name; raises ScheduleNotFound if there is none."""
        found = await self._app.perform(schedules.schedules(1, only=_possible(wanted)))
        if not found:
            raise ScheduleNotFound(wanted)
        return found[0]

    async def next(self, wanted: str, n: int = 3) -> list[datetime]:
        """The next ticks of a schedule, by the database's clock."""
        return (await self.get(wanted)).coming(None, n)

    async def run(self, wanted: str) -> JobHandle[Any]:
        """Enqueue a job of a schedule now, in addition to its ticks."""
        job_id = await self._app.perform(schedules.run_now(_possible(wanted)))
        return await self._app.job(job_id)

    async def pause(self, wanted: str) -> ScheduleRow:
        """Stop a schedule's ticks until it is resumed."""
        await self._app.perform(schedules.pause(_possible(wanted)))
        return await self.get(wanted)

    async def resume(self, wanted: str) -> ScheduleRow:
        """Let a paused schedule tick again from now on. A tick that was due before the pause fires now."""
        await self._app.perform(schedules.resume(_possible(wanted)))
        return await self.get(wanted)

    async def remove(self, wanted: str) -> None:
        """Remove a schedule that was added by `add`, or one that its code or config no longer has."""
        await self._app.perform(schedules.remove(_possible(wanted)))

    async def list(self, limit: int = 1000, *, after: str = "") -> list[ScheduleRow]:
        """Schedules in the order of their names; for the next page, pass the last name as `after`."""
        return await self._app.perform(schedules.schedules(at_most(limit), after))
