"""Failures in groups: what fails, how often, since when, and against which sources."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query

from rowlock.api.operator.common import Text, moment_before, operator_router, plain
from rowlock.api.service import Serving
from rowlock.store import panels

MOST_SOURCES = 5

router = operator_router()


@router.get("/failures")
async def failures(
    service: Serving,
    since: Annotated[str, Query(max_length=100)] = "24h",
    task: Text = None,
    queue: Text = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> dict[str, Any]:
    """Attempts that failed, timed out or were lost, grouped by task, code and message; the most frequent first."""
    until = datetime.now(UTC)
    found = await service.look(panels.failures(moment_before(since, "since"), until, task, queue))
    items = []
    for group in found.groups[:limit]:
        sources = [{"source": name, "count": count} for name, count in group.sources.most_common(MOST_SOURCES)]
        shown: dict[str, Any] = plain(group, service.zone)
        items.append({**shown, "sources": sources, "count": shown.pop("number")})
    return {
        "items": [{name: value for name, value in item.items() if name != "number"} for item in items],
        "since": plain(found.since, service.zone),
        "exact": found.exact,
    }
