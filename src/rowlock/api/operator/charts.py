"""Numbers for drawings: what ended, how long queues were, how long jobs waited and ran, what the slots did. And
failures in groups: what fails, how often, since when, and against which sources."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query

from rowlock.api.context import Serving
from rowlock.api.operator.route import Text, operator_router
from rowlock.api.problems import Refusal
from rowlock.core.errors import InvalidArguments
from rowlock.core.times import parse_moment_or_ago
from rowlock.store.read import counters, timeline
from rowlock.store.read.counters import BOUNDS, BUCKETS
from rowlock.store.read.failures import failures as read_failures

COUNTED = ("succeeded", "dead", "cancelled", *counters.FAILURES, "attempt.released")
MOST_POINTS = 300
MOST_SOURCES = 5  # of a group of failures
STEPS = (60, 300, 3600)  # seconds

router = operator_router()
Minutes = Annotated[int, Query(ge=1, le=10_080)]
T = TypeVar("T")


class Window:
    """The last minutes, in steps of which a drawing has at most MOST_POINTS."""

    def __init__(self, minutes: int) -> None:
        # Beyond a day the numbers are kept by hours.
        fitting = (step for step in STEPS if minutes * 60 / step <= MOST_POINTS)
        self.step = STEPS[-1] if minutes > 24 * 60 else next(fitting, STEPS[-1])
        self.kept = 3600 if self.step == 3600 else 60  # the numbers to read
        last = self.place(datetime.now(UTC).replace(second=0, microsecond=0))
        number = -(-minutes * 60 // self.step)
        self.moments = [last - timedelta(seconds=self.step * ago) for ago in range(number - 1, -1, -1)]
        self.since = self.moments[0]

    def place(self, at: datetime) -> datetime:
        return at - timedelta(seconds=at.timestamp() % self.step)

    def gathered(self, numbers: dict[datetime, T]) -> dict[datetime, list[T]]:
        """The numbers of each step."""
        found: dict[datetime, list[T]] = {}
        for at, one in numbers.items():
            found.setdefault(self.place(at), []).append(one)
        return found


@router.get("/charts/throughput")
async def throughput(service: Serving, minutes: Minutes = 60, queue: Text = None, task: Text = None) -> dict[str, Any]:
    """How many jobs ended and attempts failed, in each step of time."""
    window = Window(minutes)
    found = window.gathered(await service.look(counters.by_time(window.since, queue, task, window.kept)))
    points = []
    for at in window.moments:
        counts = {what.removeprefix("attempt."): sum(one.get(what, 0) for one in found.get(at, [])) for what in COUNTED}
        points.append({"at": service.json(at), **counts})
    return {"stepSeconds": window.step, "points": points}


@router.get("/charts/depth")
async def depth(service: Serving, minutes: Minutes = 60, queue: Text = None) -> dict[str, Any]:
    """How long each queue was and how old its oldest ready job, sampled once a minute while a worker runs."""
    window = Window(minutes)
    found = await service.look(counters.samples(window.since, queue, window.kept))
    queues = []
    for name, samples in sorted(found.items()):
        steps = window.gathered({sample.at: sample for sample in samples})
        longest = {at: max(ones, key=lambda sample: (sample.ready, sample.at)) for at, ones in steps.items()}
        points = [service.record(one._replace(at=at)) for at, one in sorted(longest.items())]
        for point in points:
            del point["queue"]
        queues.append({"name": name, "points": points})
    return {"stepSeconds": window.step, "queues": queues}


@router.get("/charts/heat")
async def heat(
    service: Serving,
    what: Literal["run", "wait"] = "run",
    minutes: Minutes = 60,
    queue: Text = None,
    task: Text = None,
) -> dict[str, Any]:
    """How many attempts ran, or jobs waited, for how long, in each step of time."""
    window = Window(minutes)
    found = window.gathered(await service.look(counters.heat(what, window.since, queue, task, window.kept)))
    cells = []
    for at in window.moments:
        counts = [sum(one[bucket] for one in found.get(at, [])) for bucket in range(BUCKETS)]
        cells.append({"at": service.json(at), "counts": counts})
    return {"stepSeconds": window.step, "bounds": list(BOUNDS), "cells": cells}


@router.get("/charts/slots")
async def slots(service: Serving, seconds: Annotated[int, Query(ge=10, le=3600)] = 300) -> dict[str, Any]:
    """What ran in each slot lately; the newest 2,000 attempts of each kind."""
    now, lanes, exact = await service.look(timeline.slot_lanes(float(seconds)))
    shown = []
    for lane in lanes:
        bars = []
        for bar in lane.bars:
            one = service.json(bar)
            bars.append({"from": one.pop("began"), "to": one.pop("ended"), **one})
            del bars[-1]["worker"]
        shown.append({"worker": lane.worker, "slot": lane.slot, "bars": bars})
    begin = now - timedelta(seconds=seconds)
    return {"from": service.json(begin), "to": service.json(now), "lanes": shown, "exact": exact}


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
    try:
        began = parse_moment_or_ago(since)
    except InvalidArguments as error:
        raise Refusal("INVALID_REQUEST", errors=[("since", str(error))]) from None
    found = await service.look(read_failures(began, until, task, queue))
    items = []
    for group in found.groups[:limit]:
        sources = [{"source": name, "count": count} for name, count in group.sources.most_common(MOST_SOURCES)]
        shown = service.record(group)
        items.append({"count": shown.pop("number"), **shown, "sources": sources})
    return {"items": items, "since": service.json(found.since), "exact": found.exact}
