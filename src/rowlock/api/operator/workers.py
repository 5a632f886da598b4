"""Workers, and what runs in their slots."""

from __future__ import annotations

from datetime import UTC, datetime

from rowlock.api.operator.common import Rows, operator_router, plain, record
from rowlock.api.service import Serving
from rowlock.store import panels, workers

router = operator_router()


@router.get("/workers")
async def list_workers(service: Serving) -> Rows:
    """Workers, living ones first: their slots, what runs in each, and how long ago they were heard of."""
    found = await service.look(workers.workers())
    slots: dict[str, list[dict[str, object]]] = {}
    for job in await service.look(panels.running()):
        shown = plain(job, service.zone)
        slots.setdefault(shown.pop("worker"), []).append(shown)
    now = datetime.now(UTC)
    items = [
        {
            **record(worker, service.zone),
            "heartbeatAgeSeconds": max(0.0, (now - worker.seen_at).total_seconds()),
            "slots": slots.get(worker.id, []),
        }
        for worker in found
    ]
    return Rows(items=items)
