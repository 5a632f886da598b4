"""How everything stands, in one sentence and a few numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rowlock.api.context import Service, Serving
from rowlock.api.operator.common import jsonable, operator_router, record
from rowlock.core.durations import spell
from rowlock.store import workers
from rowlock.store.read import counters
from rowlock.store.read.counts import ASIDE_SHOWN, LiveQueues, QueueStats, read_held_queues, read_queues, read_stats
from rowlock.store.read.explain import unknown_tasks
from rowlock.store.schedules import schedules
from rowlock.store.schedules.schedules import ScheduleRow
from rowlock.store.sources import sources
from rowlock.store.sources.sources import Source
from rowlock.store.upkeep import bad_rows
from rowlock.store.workers import Worker

BEHIND_SECONDS = 60.0  # a queue whose oldest ready job has waited longer is behind
MINUTES = 60
MEAN_MINUTES = 5
MOST_LISTED = 200

router = operator_router()


class Problem(NamedTuple):
    """Something that an operator may want to look at, and where."""

    kind: str
    text: str
    view: str
    name: str | None = None


@router.get("/stats")
async def stats(service: Serving) -> dict[str, Any]:
    """How queues, workers and the last minutes stand, and which waiting jobs nobody can run."""
    found = record(await service.look(read_stats()), service.zone)
    return {**found, "unknownTasks": await _unknown(service)}


@router.get("/now")
async def now(service: Serving) -> dict[str, Any]:
    """How everything stands: a sentence, what is wrong, and the numbers of the last minutes."""
    at = datetime.now(UTC)
    stats_, listed = await service.look(read_queues()), await service.look(workers.workers())
    left_alone = await service.look(bad_rows.listed(ASIDE_SHOWN))
    unknown = await _unknown(service)
    known_sources = await service.look(sources.sources(MOST_LISTED))
    known_schedules = await service.look(schedules.schedules(MOST_LISTED))
    problems = [
        *_of_queues(stats_, listed, await service.look(read_held_queues())),
        *_of_workers(listed),
        *_of_sources(known_sources, at),
        *_of_schedules(known_schedules),
        *(Problem("unknown_task", f"No worker knows the task {one['task']}.", "jobs", one["task"]) for one in unknown),
        *([Problem("set_aside", _set_aside(len(left_alone)), "jobs")] if left_alone else []),
    ]
    minutes = await service.look(counters.by_time(minute_of(at) - timedelta(minutes=MINUTES - 1)))
    whole = [
        numbers for moment, numbers in minutes.items() if 0 < (minute_of(at) - moment).seconds <= MEAN_MINUTES * 60
    ]
    means = {name: sum(counted(one)[name] for one in whole) / MEAN_MINUTES for name in counted({})}
    ended, failed = sum(means[name] for name in ("succeeded", "failed")), means["failed"]
    oldest = max(stats_.queues, key=lambda queue: queue.oldest_ready_seconds or 0.0, default=None)
    alive = [worker for worker in listed if worker.alive]
    return {
        "at": jsonable(at, service.zone),
        "sentence": sentence(stats_.queues, problems),
        "problems": jsonable(problems, service.zone),
        "waiting": {"count": sum(q.queued + q.retryable - q.waiting for q in stats_.queues), "exact": stats_.exact},
        "scheduled": {"count": sum(queue.waiting for queue in stats_.queues), "exact": stats_.exact},
        "running": sum(queue.running for queue in stats_.queues),
        "oldestSeconds": oldest.oldest_ready_seconds if oldest else None,
        "oldestQueue": oldest.name if oldest and oldest.oldest_ready_seconds is not None else None,
        "perMinute": means,
        "failureRate": failed / ended if ended else 0.0,
        "workers": {
            "alive": len(alive),
            "silent": len(listed) - len(alive),
            "slots": sum(worker.pool_size for worker in alive),
            "busy": sum(queue.running for queue in stats_.queues),
        },
        "totals": await _totals(service),
        "minutes": series(minutes, minute_of(at), MINUTES, service),
        "unknownTasks": unknown,
    }


def minute_of(at: datetime) -> datetime:
    """When the minute of a moment began."""
    return at.replace(second=0, microsecond=0)


def counted(numbers: Mapping[str, int]) -> dict[str, int]:
    """What was counted in one minute, in the words of the pages; every way of failing together."""
    found = {state: numbers.get(state, 0) for state in ("succeeded", "dead", "cancelled")}
    return found | {"failed": sum(numbers.get(what, 0) for what in counters.FAILURES)}


def series(
    minutes: Mapping[datetime, Mapping[str, int]], last: datetime, number: int, service: Service
) -> list[dict[str, Any]]:
    """The last minutes, oldest first, also minutes in which nothing was counted."""
    moments = [last - timedelta(minutes=ago) for ago in range(number - 1, -1, -1)]
    return [{"at": jsonable(moment, service.zone), **counted(minutes.get(moment, {}))} for moment in moments]


async def _totals(service: Service) -> dict[str, int]:
    found = dict.fromkeys(("succeeded", "dead", "cancelled", "failed", "timed_out", "lost", "released"), 0)
    for one in await service.look(counters.totals()):
        name = one.what.removeprefix("attempt.")
        if name in found and one.what != "attempt.cancelled":
            found[name] += one.count
    return found


async def _unknown(service: Service) -> list[dict[str, Any]]:
    waiting = await service.look(unknown_tasks())
    return [{"queue": queue, "task": task, "waiting": count} for queue, task, count in waiting]


# --- what is wrong


def sentence(queues: Sequence[QueueStats], problems: Sequence[Problem]) -> str:
    """How everything stands, for somebody who has five seconds."""
    troubled = {problem.name for problem in problems if problem.view == "queues"}
    fine = sum(queue.name not in troubled for queue in queues)
    parts = [f"{fine} {'queue is' if fine == 1 else 'queues are'} fine"] if fine else []
    parts += [problem.text.rstrip(".")[:1].lower() + problem.text.rstrip(".")[1:] for problem in problems[:4]]
    if len(problems) > 4:
        parts.append(f"{len(problems) - 4} more")
    text = "; ".join(parts) or "Nothing waits and nothing runs"
    return text[:1].upper() + text[1:] + "."


def _of_queues(stats_: LiveQueues, listed: Sequence[Worker], held: dict[str, tuple[str, ...]]) -> Iterator[Problem]:
    served = {queue for worker in listed if worker.alive for queue in worker.queues}
    for queue in stats_.queues:
        age = queue.oldest_ready_seconds or 0.0
        if queue.paused:
            yield Problem("paused", f"Queue {queue.name} is paused.", "queues", queue.name)
        elif queue.name not in served and queue.queued + queue.retryable:
            yield Problem("unserved", f"No worker serves queue {queue.name}.", "queues", queue.name)
        elif age > BEHIND_SECONDS:
            why = f": jobs wait for {_names(held[queue.name])}" if queue.name in held else ""
            yield Problem("behind", f"Queue {queue.name} is {spell(age)} behind{why}.", "queues", queue.name)


def _names(sources: Sequence[str]) -> str:
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"


def _set_aside(number: int) -> str:
    return "1 row is set aside." if number == 1 else f"{number} rows are set aside."


def _of_workers(listed: Sequence[Worker]) -> Iterator[Problem]:
    if not any(worker.alive for worker in listed):
        yield Problem("no_workers", "No worker runs.", "workers")
    for worker in listed:
        if not worker.alive:
            yield Problem("silent_worker", f"Worker {worker.id} is silent.", "workers", worker.id)


def _of_sources(listed: Sequence[Source], at: datetime) -> Iterator[Problem]:
    for source in listed:
        state = source.state(at)
        if state in ("paused", "disabled"):
            yield Problem("source_paused", f"Source {source.name} is {state}.", "sources", source.name)
        elif state in ("broken", "half-open"):
            yield Problem("breaker", f"Source {source.name} fails and is left alone.", "sources", source.name)


def _of_schedules(listed: Sequence[ScheduleRow]) -> Iterator[Problem]:
    for schedule in listed:
        if schedule.problem is not None and schedule.retired_at is None:
            yield Problem(
                "schedule", f"Schedule {schedule.id} does not fire: {schedule.problem}", "schedules", schedule.id
            )
