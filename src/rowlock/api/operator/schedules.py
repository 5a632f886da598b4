"""Schedules: their rules in words, what comes next, what became of the last ticks; run, pause, resume."""

from __future__ import annotations

from typing import Any

from rowlock.api.operator.common import (
    REFUSED,
    Acting,
    AfterName,
    Limit,
    Name,
    Rows,
    operator_router,
    plain,
    record,
    refusing,
)
from rowlock.api.service import Service, Serving
from rowlock.core.cron import parse_rule
from rowlock.core.errors import InvalidArguments
from rowlock.store import audit, panels, schedules
from rowlock.store.schedules import ScheduleRow

NEXT = 3

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
    ticks = await service.look(panels.ticks(found))
    items = []
    for schedule in found:
        item = record(schedule, service.zone)
        del item["firedAhead"]
        items.append(
            {
                **item,
                "editable": schedule.origin == "runtime",
                "words": _words(schedule),
                "next": plain(_coming(schedule), service.zone),
                "ticks": [{**plain(tick, service.zone), "fired": tick.what == "fired"} for tick in ticks[schedule.id]],
            }
        )
    return items


@router.post("/schedules/{name}/run", status_code=202, responses=REFUSED)
async def run_schedule(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Fire a schedule now, beside its ticks."""
    with refusing():
        return {"jobId": await service.run(audit.audited(schedules.run_now(name), actor, "schedules.run", name))}


@router.post("/schedules/{name}/pause", responses=REFUSED)
async def pause_schedule(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Fire no more ticks of a schedule."""
    with refusing():
        await service.run(audit.audited(schedules.pause(name), actor, "schedules.pause", name))
        return await shown(service, name)


@router.post("/schedules/{name}/resume", responses=REFUSED)
async def resume_schedule(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Fire ticks of a schedule again."""
    with refusing():
        await service.run(audit.audited(schedules.resume(name), actor, "schedules.resume", name))
        return await shown(service, name)


def _words(schedule: ScheduleRow) -> str:
    try:
        return parse_rule(schedule.rule, schedule.zone, seconds=True).words()
    except InvalidArguments as error:  # a newer version has written it
        return str(error)


def _coming(schedule: ScheduleRow) -> list[Any]:
    try:
        return schedule.coming(None, NEXT)
    except InvalidArguments:
        return []
