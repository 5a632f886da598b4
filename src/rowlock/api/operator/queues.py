"""Queues (how long they are, how fast jobs go through, pause and resume) and the workers that serve them (what runs in
their slots, and how to end one)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rowlock.api.context import Acting, Service, Serving
from rowlock.api.operator.charts import Window
from rowlock.api.operator.now import series
from rowlock.api.operator.route import REFUSED, Name, Rows, operator_router
from rowlock.api.problems import documented
from rowlock.core.option_checks import name as checked_name
from rowlock.store import audit, workers
from rowlock.store import queues as store_queues
from rowlock.store.audit import Actor
from rowlock.store.read import counters
from rowlock.store.read.snapshot import running
from rowlock.store.workers import StopHow

MINUTES, SPREAD_MINUTES = 30, 60
MOST_RUNNING = 2_000

router = operator_router()


@router.get("/queues")
async def queues(service: Serving) -> Rows:
    """Queues: how many jobs wait and run in each, the slots that serve it, and its last minutes."""
    found = await service.snapshots.get()
    window = Window(MINUTES)
    ends = await service.look(counters.by_queue(window.since))
    spread = await service.look(counters.spread(Window(SPREAD_MINUTES).since))
    items = []
    for queue in found.queues:
        mine = [worker for worker in found.listed if worker.alive and queue.name in worker.queues]
        run, wait = spread.get(queue.name, ([], []))
        items.append(
            {
                **service.record(queue),
                "exact": found.exact,
                "slots": sum(worker.pool_size for worker in mine),
                "workers": len(mine),
                "minutes": series(service, window, ends.get(queue.name, {})),
                "runSeconds": _percentiles(run),
                "waitSeconds": _percentiles(wait),
            }
        )
    return Rows(items=items)


def _percentiles(counts: list[int]) -> dict[str, Any] | None:
    if not any(counts):
        return None
    return {"p50": counters.percentile(counts, 0.5), "p95": counters.percentile(counts, 0.95)}


@router.post("/queues/{name:path}/pause", status_code=204, responses=documented("INVALID_ARGUMENTS"))
async def pause_queue(service: Serving, actor: Acting, name: Name) -> None:
    """Claim no more jobs of a queue; running ones go on."""
    checked_name(name, "a queue's name")
    await service.run(audit.audited(store_queues.pause(name), actor, "queues.pause", name))


@router.post("/queues/{name:path}/resume", status_code=204)
async def resume_queue(service: Serving, actor: Acting, name: Name) -> None:
    """Claim jobs of a queue again."""
    await service.run(audit.audited(store_queues.resume(name), actor, "queues.resume", name))


@router.get("/workers")
async def list_workers(service: Serving) -> Rows:
    """Workers, living ones first: their slots, what runs in each, and how long ago they were heard of."""
    found = await service.look(workers.workers())
    slots: dict[str, list[dict[str, object]]] = {}
    jobs = await service.look(running(MOST_RUNNING))
    for job in sorted(jobs):
        shown = service.json(job)
        del shown["overdue"]
        slots.setdefault(shown.pop("worker"), []).append(shown)
    now = datetime.now(UTC)
    items = [
        {
            **service.record(worker),
            "heartbeatAgeSeconds": max(0.0, (now - worker.seen_at).total_seconds()),
            "slots": slots.get(worker.id, []),
        }
        for worker in found
    ]
    return Rows(items=items)


@router.post("/workers/{name:path}/drain", status_code=202, responses=REFUSED)
async def drain_worker(service: Serving, actor: Acting, name: Name) -> dict[str, str]:
    """Ask a worker to take no more jobs, and to end its process after the jobs that it runs."""
    return await _ask(service, actor, name, "drain")


@router.post("/workers/{name:path}/stop", status_code=202, responses=REFUSED)
async def stop_worker(service: Serving, actor: Acting, name: Name) -> dict[str, str]:
    """Ask a worker to give back the jobs that it runs, which uses up no try, and to end its process now."""
    return await _ask(service, actor, name, "stop")


async def _ask(service: Service, actor: Actor, worker: str, how: StopHow) -> dict[str, str]:
    await service.run(audit.audited(workers.ask_to_stop(worker, how), actor, f"workers.{how}", worker))
    return {"id": worker, "stopRequested": how}
