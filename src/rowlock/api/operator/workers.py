"""Workers, what runs in their slots, and how to end one."""

from __future__ import annotations

from datetime import UTC, datetime

from rowlock.api.operator.common import REFUSED, Acting, Name, Rows, operator_router, plain, record, refusing
from rowlock.api.service import Service, Serving
from rowlock.store import audit, panels, workers
from rowlock.store.audit import Actor
from rowlock.store.workers import StopHow

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


@router.post("/workers/{name}/drain", status_code=202, responses=REFUSED)
async def drain_worker(service: Serving, actor: Acting, name: Name) -> dict[str, str]:
    """Ask a worker to take no more jobs, and to end its process after the jobs that it runs."""
    return await _ask(service, actor, name, "drain")


@router.post("/workers/{name}/stop", status_code=202, responses=REFUSED)
async def stop_worker(service: Serving, actor: Acting, name: Name) -> dict[str, str]:
    """Ask a worker to give back the jobs that it runs, which uses up no try, and to end its process now."""
    return await _ask(service, actor, name, "stop")


async def _ask(service: Service, actor: Actor, worker: str, how: StopHow) -> dict[str, str]:
    with refusing():
        await service.run(audit.audited(workers.ask_to_stop(worker, how), actor, f"workers.{how}", worker))
    return {"id": worker, "stopRequested": how}
