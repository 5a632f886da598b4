"""The dashboard's first page: a sentence and a few numbers. What counts as wrong is decided in health/conditions.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock.api.context import Service, Serving
from rowlock.api.operator.charts import COUNTED, Window
from rowlock.api.operator.route import operator_router
from rowlock.health.conditions import CONDITIONS, Condition, conditions
from rowlock.store.read import counters
from rowlock.store.read.counts import QueueStats, read_stats

MINUTES = 60
MEAN_MINUTES = 5
SAID = 4  # conditions in the sentence

router = operator_router()


@router.get("/stats")
async def stats(service: Serving) -> dict[str, Any]:
    """How queues, workers and the last minutes stand, and which waiting jobs nobody can run."""
    found = await service.snapshots.get()
    return {
        **service.record(await service.look(read_stats(found))),
        "unknownTasks": service.json(found.unknown),
    }


@router.get("/now")
async def now(service: Serving) -> dict[str, Any]:
    """How everything stands: a sentence, what is wrong, and the numbers of the last minutes."""
    at, window, found = datetime.now(UTC), Window(MINUTES), await service.snapshots.get()
    wrong = conditions(found)
    minutes = await service.look(counters.by_time(window.since))
    whole = [minutes.get(moment, {}) for moment in window.moments[-MEAN_MINUTES - 1 : -1]]
    means = {name: sum(counted(one)[name] for one in whole) / MEAN_MINUTES for name in counted({})}
    ended, failed = sum(means[name] for name in ("succeeded", "failed")), means["failed"]
    oldest = max(found.queues, key=lambda queue: queue.oldest_ready_seconds or 0.0, default=None)
    running = sum(queue.running for queue in found.queues)
    return {
        "at": service.json(at),
        "sentence": sentence(found.queues, wrong),
        "problems": [_problem(one) for one in wrong],
        "waiting": {"count": sum(queue.ready for queue in found.queues), "exact": found.exact},
        "scheduled": {"count": sum(queue.waiting for queue in found.queues), "exact": found.exact},
        "running": running,
        "oldestSeconds": oldest.oldest_ready_seconds if oldest else None,
        "oldestQueue": oldest.name if oldest and oldest.oldest_ready_seconds is not None else None,
        "perMinute": means,
        "failureRate": failed / ended if ended else 0.0,
        "workers": {
            "alive": found.workers,
            "silent": len(found.listed) - found.workers,
            "slots": found.slots,
            "busy": running,
        },
        "totals": await _totals(service),
        "minutes": series(service, window, minutes),
        "unknownTasks": service.json(found.unknown),
    }


def counted(numbers: Mapping[str, int]) -> dict[str, int]:
    """The counts of one minute, in the words of the pages; all kinds of failure are one number."""
    found = {state: numbers.get(state, 0) for state in ("succeeded", "dead", "cancelled")}
    return found | {"failed": sum(numbers.get(what, 0) for what in counters.FAILURES)}


def series(service: Service, window: Window, minutes: Mapping[datetime, Mapping[str, int]]) -> list[dict[str, Any]]:
    """The last minutes, oldest first, including those in which nothing was counted."""
    return [{"at": service.json(moment), **counted(minutes.get(moment, {}))} for moment in window.moments]


async def _totals(service: Service) -> dict[str, int]:
    found = dict.fromkeys(COUNTED, 0)
    for one in await service.look(counters.totals()):
        if one.what in found:
            found[one.what] += one.count
    return {what.removeprefix("attempt."): number for what, number in found.items()}


def sentence(queues: Sequence[QueueStats], wrong: Sequence[Condition]) -> str:
    """For somebody who has five seconds."""
    troubled = {one.name for one in wrong if CONDITIONS[one.kind].view == "queues"}
    fine = sum(queue.name not in troubled for queue in queues)
    parts = [f"{fine} {'queue is' if fine == 1 else 'queues are'} fine"] if fine else []
    parts += [one.short for one in wrong[:SAID]]
    if len(wrong) > SAID:
        parts.append(f"{len(wrong) - SAID} more")
    return _written("; ".join(parts) or "nothing waits and nothing runs")


def _problem(one: Condition) -> dict[str, Any]:
    return {"kind": one.kind, "text": _written(one.text), "view": CONDITIONS[one.kind].view, "name": one.name or None}


def _written(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith("?") else ".")
