"""Sources: limits, breakers, the last hour; set, pause, resume."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from rowlock.api.context import Acting, Serving
from rowlock.api.operator.route import REFUSED, AfterName, Limit, Name, Rows, operator_router
from rowlock.api.schemas import Shape
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.read import timeline
from rowlock.store.sources import sources
from rowlock.store.sources.sources import Source

router = operator_router()


class Limits(Shape):
    """Settings of a source or of a class of sources; what is not named stays, null takes a setting back."""

    concurrency: int | None = Field(default=None, ge=0)
    total: int | None = Field(default=None, ge=0)
    rate: str | None = Field(default=None, max_length=50, examples=["30/min"])
    burst: int | None = Field(default=None, ge=1)
    threshold: int | None = Field(default=None, ge=1)
    cooldown: float | None = Field(default=None, gt=0, description="Seconds")
    factor: float | None = Field(default=None, ge=1)
    block_after: int | None = Field(default=None, ge=1)


class Pause(Shape):
    """How long to pause; without it until resumed."""

    seconds: float | None = Field(default=None, gt=0)


@router.get("/sources")
async def list_sources(service: Serving, limit: Limit = 100, after: AfterName = "") -> Rows:
    """Sources and their classes by name: limits, tokens, running jobs, breaker, and the last hour by minutes."""
    found = await service.look(sources.sources(limit, after))
    levels = await service.look(sources.tokens([source.name for source in found]))
    strips = await service.look(timeline.source_strips([source.name for source in found]))
    now = datetime.now(UTC)
    items = [
        {
            **service.record(source),
            "state": source.state(now),
            "isClass": source.is_class,
            "tokens": levels.get(source.name),
            "strip": service.json(strips.get(source.name, [])),
        }
        for source in found
    ]
    return Rows(items=items)


@router.post("/sources/{name:path}/pause", responses=REFUSED)
async def pause_source(service: Serving, actor: Acting, name: Name, pause: Pause | None = None) -> dict[str, Any]:
    """Start no more jobs of a source."""
    seconds = pause.seconds if pause else None
    return await _audited(service, actor, "pause", service.client.sources.pause(name, seconds), {"seconds": seconds})


@router.post("/sources/{name:path}/resume", responses=REFUSED)
async def resume_source(service: Serving, actor: Acting, name: Name) -> dict[str, Any]:
    """Start jobs of a source again, with a closed breaker."""
    return await _audited(service, actor, "resume", service.client.sources.resume(name), {})


# After the others: its path would take theirs, where a name may have slashes.
@router.post("/sources/{name:path}", responses=REFUSED)
async def set_source(service: Serving, actor: Acting, name: Name, limits: Limits) -> dict[str, Any]:
    """Limit a source, or every source of a class. Running workers heed it at once."""
    changes = limits.model_dump(exclude_unset=True)
    return await _audited(service, actor, "set", service.client.sources.set(name, **changes), changes)


async def _audited(
    service: Serving, actor: Actor, verb: str, change: Awaitable[Source], details: dict[str, Any]
) -> dict[str, Any]:
    """Make a change and write it into the audit, both or neither."""
    async with service.client.transaction() as transaction:
        source = await change
        await transaction.run(audit.write_alone(actor, f"sources.{verb}", source.name, details))
    return service.record(source)
