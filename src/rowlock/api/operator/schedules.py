"""Schedules: their rules in words, what comes next, what became of the last ticks; run, pause, resume, add, change,
remove, as `rowlock schedules` does."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from rowlock.api.context import Acting, Service, Serving
from rowlock.api.operator.route import REFUSED, AfterName, Limit, Name, Rows, Word, operator_router
from rowlock.api.schemas import Shape
from rowlock.client.handles.schedules import schedule_of
from rowlock.client.tasks.registry import any_task
from rowlock.core.errors import InvalidArguments, NotAllowed
from rowlock.core.schedules.rule import parse_rule
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.schedules import history, schedules
from rowlock.store.schedules.schedules import ScheduleRow

NEXT = 3
RULES = ("cron", "every", "at")
# The names that definitions of schedules have in code and config, where these differ from the body's.
GIVEN_AS = {
    "missed_seconds": "missed_window",
    "jitter_seconds": "jitter",
    "timeout_seconds": "timeout",
    "starts_at": "start",
    "ends_at": "end",
}

router = operator_router()


@router.get("/schedules")
async def list_schedules(service: Serving, limit: Limit = 25, after: AfterName = "") -> Rows:
    """Schedules by name."""
    return Rows(items=await _items(service, await service.look(schedules.schedules(limit, after))))


async def shown(service: Service, name: str) -> dict[str, Any]:
    """One schedule as the list has it. Raises ScheduleNotFound."""
    (item,) = await _items(service, [await service.client.schedules.get(name)])
    return item


async def _items(service: Service, found: list[ScheduleRow]) -> list[dict[str, Any]]:
    ticks = await service.look(history.ticks(found))
    items = []
    for schedule in found:
        try:
            words = parse_rule(schedule.rule, schedule.zone, seconds=True).words()
            coming = schedule.coming(None, NEXT)
        except InvalidArguments as error:  # a newer version has written the rule
            words, coming = str(error), []
        item = service.record(schedule) | {
            "editable": schedule.origin == "runtime",
            "words": words,
            "next": service.json(coming),
            "ticks": [{**service.record(tick), "fired": tick.what == "fired"} for tick in ticks[schedule.id]],
        }
        del item["firedAhead"]
        items.append(item)
    return items


@router.post("/schedules/{name:path}/run", status_code=202, responses=REFUSED)
async def run_schedule(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Fire a schedule now, beside its ticks."""
    return {"jobId": await service.run(audit.audited(schedules.run_now(name), actor, "schedules.run", name))}


@router.post("/schedules/{name:path}/pause", responses=REFUSED)
async def pause_schedule(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Fire no more ticks of a schedule."""
    await service.run(audit.audited(schedules.pause(name), actor, "schedules.pause", name))
    return await shown(service, name)


@router.post("/schedules/{name:path}/resume", responses=REFUSED)
async def resume_schedule(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Fire ticks of a schedule again."""
    await service.run(audit.audited(schedules.resume(name), actor, "schedules.resume", name))
    return await shown(service, name)


# --- add, change, remove


class ScheduleShape(Shape):
    """What can be said about a schedule. Of one that is changed, what is not given stays."""

    cron: Word | None = Field(default=None, description="Five fields, or six with seconds first")
    every: Word | None = Field(default=None, examples=["5m"])
    at: Word | None = Field(default=None, description="Once, at this moment")
    zone: Word | None = None
    args: dict[str, Any] | None = None
    missed: Literal["latest", "skip", "all"] | None = None
    missed_most: int | None = None
    missed_seconds: float | None = None
    overlap: Literal["allow", "skip"] | None = None
    jitter_seconds: float | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    queue: Word | None = None
    priority: int | None = None
    owner: Word | None = None
    source: Word | None = None
    max_attempts: int | None = None
    timeout_seconds: float | None = None

    def given(self) -> dict[str, Any]:
        """The fields that were given, null included, by the names that code and config use."""
        given = self.model_dump(include=set(ScheduleShape.model_fields) & self.model_fields_set)
        return {GIVEN_AS.get(name, name): value for name, value in given.items()}


class EditedSchedule(ScheduleShape):
    """A change of a schedule."""

    enabled: bool | None = Field(default=None, description="False pauses it, true resumes it")


class NewSchedule(ScheduleShape):
    """A schedule to add."""

    name: Word
    task: Word


@router.post("/schedules", status_code=201, responses=REFUSED)
async def add_schedule(service: Serving, actor: Acting, body: NewSchedule) -> dict[str, Any]:
    """Add a schedule without restarting anything."""
    if await service.run(schedules.schedules(1, only=body.name)):
        raise NotAllowed(f"there is a schedule named {body.name!r} already")
    await _declare(service, actor, body.name, body.task, body.given())
    return await shown(service, body.name)


@router.post("/schedules/{name:path}/edit", responses=REFUSED)
async def edit_schedule(service: Serving, actor: Acting, name: Name, body: EditedSchedule) -> dict[str, Any]:
    """Change a schedule that was added by hand, as `rowlock schedules add` does with a name that exists; any can be
    enabled and disabled."""
    there, given = await service.client.schedules.get(name), body.given()
    if given:
        if there.origin != "runtime":
            raise NotAllowed(f"schedule {name!r} comes from the {there.origin}: change it there, or pause it")
        await _declare(service, actor, name, there.task, _changed(there, given), sorted(given))
    if body.enabled is not None and body.enabled != (there.paused_at is None):
        change, what = (schedules.resume, "resume") if body.enabled else (schedules.pause, "pause")
        await service.run(audit.audited(change(name), actor, f"schedules.{what}", name))
    return await shown(service, name)


@router.post("/schedules/{name:path}/remove", status_code=204, responses=REFUSED)
async def remove_schedule(service: Serving, actor: Acting, name: Name) -> None:
    """Forget a schedule that was added by hand, or one that is retired. Its jobs stay."""
    await service.run(audit.audited(schedules.remove(name), actor, "schedules.remove", name))


def _changed(there: ScheduleRow, given: dict[str, Any]) -> dict[str, Any]:
    """The whole definition: what is stored, and the change."""
    named = [name for name in ScheduleShape.model_fields if name not in RULES]
    stored = {GIVEN_AS.get(name, name): getattr(there, name) for name in named}
    if all(given.get(name) is None for name in RULES):
        stored["rule"] = there.rule
    return stored | given


async def _declare(
    service: Service, actor: Actor, name: str, task_name: str, given: dict[str, Any], changed: list[str] | None = None
) -> None:
    """Add a schedule, or with `changed` change it: the names of what is changed."""
    given = {key: value for key, value in given.items() if value is not None}  # null: as the task has it
    args = given.get("args", {})
    if not isinstance(args, dict):
        raise InvalidArguments(f"schedule {name!r}: its stored arguments cannot be read: give args")
    task = await any_task(service.client, task_name, given.get("source"), args)
    made = schedule_of(service.client, name, task, {"seconds": True} | given)
    details = {"task": task_name, "rule": made.rule.text, "zone": made.rule.zone, "changed": changed}
    action = "schedules.add" if changed is None else "schedules.edit"
    wanted = audit.audited(schedules.declare([made], "runtime", None), actor, action, name, details)
    for origin in (await service.run(wanted)).refused.values():
        raise NotAllowed(f"schedule {name!r} comes from the {origin}: take another name")
