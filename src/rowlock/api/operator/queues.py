"""Queues: how long they are, how fast jobs go through, pause and resume."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rowlock.api.operator.common import Acting, Name, Rows, operator_router, record, refusing
from rowlock.api.operator.now import minute_of, series
from rowlock.api.problems import documented
from rowlock.api.service import Serving
from rowlock.core.option_checks import name as checked_name
from rowlock.store import audit, reads, tallies, workers

MINUTES = 30

router = operator_router()


@router.get("/queues")
async def queues(service: Serving) -> Rows:
    """Queues: how many jobs wait and run in each, the slots that serve it, and its last minutes."""
    stats = await service.look(reads.queues())
    last = minute_of(datetime.now(UTC))
    ends = await service.look(tallies.by_queue(last - timedelta(minutes=MINUTES - 1)))
    spread = await service.look(tallies.spread(last - timedelta(minutes=59)))
    serving = [worker for worker in await service.look(workers.workers()) if worker.alive]
    items = []
    for queue in stats.queues:
        mine = [worker for worker in serving if queue.name in worker.queues]
        run, wait = spread.get(queue.name, ([], []))
        items.append(
            {
                **record(queue, service.zone),
                "exact": stats.exact,
                "slots": sum(worker.pool_size for worker in mine),
                "workers": len(mine),
                "minutes": series(ends.get(queue.name, {}), last, MINUTES, service),
                "runSeconds": _percentiles(run),
                "waitSeconds": _percentiles(wait),
            }
        )
    return Rows(items=items)


def _percentiles(counts: list[int]) -> dict[str, Any] | None:
    if not any(counts):
        return None
    return {"p50": tallies.percentile(counts, 0.5), "p95": tallies.percentile(counts, 0.95)}


@router.post("/queues/{name}/pause", status_code=204, responses=documented("INVALID_ARGUMENTS"))
async def pause_queue(service: Serving, actor: Acting, name: Name) -> None:
    """Claim no more jobs of a queue; running ones go on."""
    with refusing():
        checked_name(name, "a queue's name")
    await service.run(audit.audited(workers.pause_queue(name), actor, "queues.pause", name))


@router.post("/queues/{name}/resume", status_code=204)
async def resume_queue(service: Serving, actor: Acting, name: Name) -> None:
    """Claim jobs of a queue again."""
    await service.run(audit.audited(workers.resume_queue(name), actor, "queues.resume", name))
