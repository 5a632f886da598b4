"""The recent past: the calls to each source by minute, and the attempts in each slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from rowlock.store.engine import clock
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment, record

STRIP_SECONDS = 3600.0
MOST_ENDS = 10_000  # the most finished jobs that strips are made from
MOST_BARS = 2_000


class StripMinute(NamedTuple):
    """The results of calls to a source in one minute."""

    at: datetime
    succeeded: int
    failed: int


@operation(read=True)
def source_strips(names: Sequence[str]) -> Steps[dict[str, list[StripMinute]]]:
    """The last hour of each source by minute, without empty minutes, from the newest MOST_ENDS finished jobs."""
    asked = [(name,) for name in names]
    found: dict[str, dict[datetime, list[int]]] = defaultdict(dict)
    for row in (yield Call("source_strip", asked=asked, n=MOST_ENDS, ago=-STRIP_SECONDS)) if asked else []:
        minute = found[row.source].setdefault(moment(row.at), [0, 0])
        minute[0] += int(row.succeeded)
        minute[1] += int(row.failed)
    return {name: [StripMinute(at, *numbers) for at, numbers in sorted(each.items())] for name, each in found.items()}


class Bar(NamedTuple):
    """One attempt in a chart of the slots."""

    job_id: str
    task: str
    attempt: int
    worker: str
    outcome: str
    began: datetime
    ended: datetime | None


class Lane(NamedTuple):
    """One slot of a worker, with its attempts."""

    worker: str
    slot: int
    bars: list[Bar]


@operation(read=True)
def slot_lanes(seconds: float) -> Steps[tuple[datetime, list[Lane], bool]]:
    """The present moment, the attempts of the last `seconds` in as many lanes as ran concurrently, and whether these
    are all attempts of that time."""
    now = yield from clock.now().start()
    rows = yield Call("slot_bars", n=MOST_BARS, ago=-seconds)
    bars = [record(Bar, row) for row in rows if row.began is not None]
    return now, in_lanes(bars), len(rows) < MOST_BARS


def in_lanes(bars: Iterable[Bar]) -> list[Lane]:
    """Arrange attempts in lanes without overlaps. Their real slots aren't stored, so each gets the first free lane."""
    lanes: dict[str, list[Lane]] = {}
    for bar in sorted(bars, key=lambda bar: (bar.worker, bar.began)):
        mine = lanes.setdefault(bar.worker, [])
        free = (lane for lane in mine if lane.bars[-1].ended is not None and lane.bars[-1].ended <= bar.began)
        lane = next(free, None)
        if lane is None:
            lane = Lane(bar.worker, len(mine), [])
            mine.append(lane)
        lane.bars.append(bar)
    return [lane for worker in sorted(lanes) for lane in lanes[worker]]
