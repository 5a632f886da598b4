"""New schedules, changes of those that were added by hand, and their end: what `rowlock schedules` can do."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rowlock.api.operator.common import REFUSED, Acting, Name, operator_router, refusing
from rowlock.api.operator.schedules import shown
from rowlock.api.service import Service, Serving
from rowlock.api.shapes import NO_NUL, Shape
from rowlock.client.schedules import schedule_of
from rowlock.client.stored_tasks import any_task
from rowlock.core.errors import InvalidArguments, NotAllowed
from rowlock.store import audit, schedules
from rowlock.store.audit import Actor
from rowlock.store.schedules import ScheduleRow

router = operator_router()
Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
RULES = ("cron", "every", "at")
# The names that definitions of schedules have in code and config, where these differ from the body's.
GIVEN_AS = {
    "missed_seconds": "missed_window",
    "jitter_seconds": "jitter",
    "timeout_seconds": "timeout",
    "starts_at": "start",
    "ends_at": "end",
}


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
        """What was said, null included, by the names that code and config use."""
        said = self.model_dump(include=set(ScheduleShape.model_fields) & self.model_fields_set)
        return {GIVEN_AS.get(name, name): value for name, value in said.items()}


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
    with refusing():
        if await service.run(schedules.schedules(1, only=body.name)):
            raise NotAllowed(f"there is a schedule named {body.name!r} already")
        await _declare(service, actor, "schedules.add", body.name, body.task, body.given())
        return await shown(service, body.name)


@router.post("/schedules/{name}/edit", responses=REFUSED)
async def edit_schedule(service: Serving, actor: Acting, name: Name, body: EditedSchedule) -> dict[str, Any]:
    """Change a schedule that was added by hand, as `rowlock schedules add` does with a name that exists; any can be
    enabled and disabled."""
    with refusing():
        there, given = await service.client.schedules.get(name), body.given()
        if given:
            if there.origin != "runtime":
                raise NotAllowed(f"schedule {name!r} comes from the {there.origin}: change it there, or pause it")
            await _declare(service, actor, "schedules.edit", name, there.task, _changed(there, given), sorted(given))
        if body.enabled is not None and body.enabled != (there.paused_at is None):
            change, what = (schedules.resume, "resume") if body.enabled else (schedules.pause, "pause")
            await service.run(audit.audited(change(name), actor, f"schedules.{what}", name))
        return await shown(service, name)


@router.post("/schedules/{name}/remove", status_code=204, responses=REFUSED)
async def remove_schedule(service: Serving, actor: Acting, name: Name) -> None:
    """Forget a schedule that was added by hand, or one that is retired. Its jobs stay."""
    with refusing():
        await service.run(audit.audited(schedules.remove(name), actor, "schedules.remove", name))


def _changed(there: ScheduleRow, given: dict[str, Any]) -> dict[str, Any]:
    """The whole definition: what is stored, and the change."""
    stored: dict[str, Any] = {
        "rule": there.rule,
        "missed_window": there.missed_seconds,
        "jitter": there.jitter_seconds,
        "start": there.starts_at,
        "end": there.ends_at,
        "timeout": there.timeout_seconds,
    }
    same = ("zone", "args", "missed", "missed_most", "overlap", "queue", "priority", "owner", "source", "max_attempts")
    stored |= {name: getattr(there, name) for name in same}
    if any(given.get(name) is not None for name in RULES):
        del stored["rule"]
    return stored | given


async def _declare(
    service: Service,
    actor: Actor,
    action: str,
    name: str,
    task_name: str,
    given: dict[str, Any],
    changed: list[str] | None = None,
) -> None:
    given = {key: value for key, value in given.items() if value is not None}  # null: as the task has it
    args = given.get("args", {})
    if not isinstance(args, dict):
        raise InvalidArguments(f"schedule {name!r}: its stored arguments cannot be read: give args")
    task = await any_task(service.client, task_name, given.get("source"), args)
    made = schedule_of(service.client, name, task, {"seconds": True} | given)
    details = {"task": task_name, "rule": made.rule.text, "zone": made.rule.zone, "changed": changed}
    wanted = audit.audited(schedules.declare([made], "runtime", None), actor, action, name, details)
    for origin in (await service.run(wanted)).refused.values():
        raise NotAllowed(f"schedule {name!r} comes from the {origin}: take another name")
