"""What the demo must have shown, and the closing words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from rowlock_apps.cronjobs.executions import Execution

SECOND = timedelta(seconds=1)

# How every execution of a cron job must end: its status, and how many retries that took.
EXPECTED = {
    "heartbeat": ("SUCCESS", 0),
    "added-later": ("SUCCESS", 0),
    "flaky": ("SUCCESS", 2),
    "broken": ("FAILED", 1),
    "too-slow": ("TIMEOUT", 0),
    "one-at-a-time": ("SUCCESS", 0),
}
WORDS = {
    "heartbeat": "one for each second; none while it was paused",
    "added-later": "added at run time, by hand",
    "flaky": "failed twice each, and succeeded at the third try",
    "broken": "failed, and failed again: max_retry is 1",
    "too-slow": "stopped after timeout_seconds",
    "one-at-a-time": "ticks were passed over while the one before ran",
}


def summary(seen: list[Execution]) -> str:
    """A line for each cron job."""
    ticks = {(each.job_id, each.scheduled_time) for each in seen}
    lines = ["", f"done       {len(ticks)} ticks were fired by two dispatchers and made {len(seen)} executions:"]
    for name, found in _by_name(seen).items():
        counted = ", ".join(f"{n} {status}" for status, n in sorted(Counter(e.status for e in found).items()))
        lines.append(f"           {name:14} {counted:12}  {WORDS.get(name, '')}")
    return "\n".join(lines)


def mistakes(seen: list[Execution]) -> list[str]:
    found = _by_name(seen)
    return [*_missing(found), *_twice(seen), *_ended_otherwise(seen), *_gaps(found), *_overlaps(found)]


def _by_name(seen: Iterable[Execution]) -> dict[str, list[Execution]]:
    """The executions of each cron job, by their ticks."""
    found: dict[str, list[Execution]] = {name: [] for name in EXPECTED}
    for execution in sorted(seen, key=lambda each: each.scheduled_time):
        found.setdefault(execution.job_id, []).append(execution)
    return found


def _missing(found: dict[str, list[Execution]]) -> Iterator[str]:
    yield from (f"{name} was never fired" for name in EXPECTED if not found[name])


def _twice(seen: list[Execution]) -> Iterator[str]:
    fired = Counter((each.job_id, each.scheduled_time) for each in seen)
    yield from (f"{name} was fired {n} times at {tick:%X}" for (name, tick), n in fired.items() if n > 1)


def _ended_otherwise(seen: list[Execution]) -> Iterator[str]:
    for each in seen:
        wanted = EXPECTED.get(each.job_id)
        if wanted is not None and (each.status, each.retry_count) != wanted:
            yield f"{each.job_id} at {each.scheduled_time:%X} is {each.status} after {each.retry_count} retries"


def _gaps(found: dict[str, list[Execution]]) -> Iterator[str]:
    """Every second has its tick, but for the pause of the heartbeat."""
    for name, allowed in (("heartbeat", 1), ("added-later", 0)):
        ticks = [each.scheduled_time for each in found[name]]
        if (gaps := _jumps(ticks)) != allowed:
            yield f"the ticks of {name} have {gaps} gaps, not {allowed}"


def _jumps(ticks: list[datetime]) -> int:
    return sum(after - before > SECOND for before, after in pairwise(ticks))


def _overlaps(found: dict[str, list[Execution]]) -> Iterator[str]:
    """No two executions overlap, so some seconds have none."""
    alone = found["one-at-a-time"]
    for before, after in pairwise(alone):
        if before.finished_at and after.started_at and after.started_at < before.finished_at:
            yield f"one-at-a-time ran twice at once, at {after.scheduled_time:%X}"
    if _jumps([each.scheduled_time for each in alone]) < len(alone) - 1:
        yield "one-at-a-time: no tick was passed over"
