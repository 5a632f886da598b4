"""What the pages of a dashboard show beside lists and counts: what runs, failures in groups, ticks, strips, slots."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from rowlock.core.errors import InvalidArguments
from rowlock.core.schedules.rule import parse_rule
from rowlock.store.engine import clock
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment, record
from rowlock.store.schedules.fire import ON_TIME
from rowlock.store.schedules.schedules import ScheduleRow

MOST_RUNNING = 2_000
MOST_FAILURES = 5_000
PARTS = 24  # of the time that a failure's trend shows
TICKS = 30
STRIP_SECONDS = 3600.0
MOST_ENDS = 10_000  # finished jobs that a strip is made from
MOST_BARS = 2_000
ORDINARY = re.compile(  # what differs between two messages with one cause
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+|\b[0-9a-f]{16,}\b|\d+(?:\.\d+)?",
    re.IGNORECASE,
)
QUOTED = re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\"|https?://\S+")


# --- workers


class Running(NamedTuple):
    """A job that runs now."""

    job_id: str
    task: str
    queue: str
    attempt: int
    worker: str
    since: datetime | None
    seconds: float
    progress: int | None
    phase: str | None


@operation(read=True)
def running() -> Steps[list[Running]]:
    """What runs now, up to MOST_RUNNING jobs."""
    rows = yield Call("running_jobs", n=MOST_RUNNING)
    return [record(Running, row, seconds=float(row.seconds or 0.0)) for row in rows]


# --- failures


@dataclass(slots=True)
class FailureGroup:
    """Failures with one cause: one task, one error code, and one message apart from numbers, ids and quoted texts."""

    fingerprint: str
    task: str
    error_code: str | None
    message: str
    example: str = ""
    number: int = 0
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    trend: list[int] = field(default_factory=lambda: [0] * PARTS)
    sources: Counter[str] = field(default_factory=Counter)
    last_job_id: str | None = None


class Failures(NamedTuple):
    """Groups of failures, the most frequent first."""

    groups: list[FailureGroup]
    since: datetime
    exact: bool  # False: only the newest MOST_FAILURES were grouped, since that moment


@operation(read=True)
def failures(since: datetime, until: datetime, task: str | None = None, queue: str | None = None) -> Steps[Failures]:
    """Attempts that failed, timed out or were lost, in groups."""
    beyond = yield Call("oldest_failure", since=since, skip=MOST_FAILURES)
    since = moment(beyond[0].at) if beyond else since
    width = max((until - since).total_seconds(), 1.0) / PARTS
    given = {"since": since, "width": width, "n": MOST_FAILURES, "task": task, "queue": queue}
    found: dict[tuple[str, str | None, str], FailureGroup] = {}
    for row in (yield Call("failures", **given)):
        text = (row.message or "").partition("\n")[0]
        key = (row.task, row.error_code, normalised(text))
        group = found.get(key)
        if group is None:
            group = found[key] = FailureGroup(fingerprint(*key), *key)
        number, first, last = int(row.number), moment(row.first_at), moment(row.last_at)
        group.number += number
        group.trend[min(max(row.slot, 0), PARTS - 1)] += number
        if row.source is not None:
            group.sources[row.source] += number
        group.first_seen = first if group.first_seen is None else min(first, group.first_seen)
        if group.last_seen is None or last >= group.last_seen:
            group.last_seen, group.example, group.last_job_id = last, text, row.job_id
    groups = sorted(found.values(), key=lambda group: (-group.number, group.fingerprint))
    return Failures(groups, since, not beyond)


def normalised(message: str) -> str:
    """A message without what differs from one failure to the next."""
    return ORDINARY.sub("<n>", QUOTED.sub("<…>", message))


def fingerprint(task: str, code: str | None, message: str) -> str:
    """What failures that say the same have in common, in a few characters."""
    return hashlib.sha256("\0".join((task, code or "", message)).encode(errors="replace")).hexdigest()[:12]


@operation(read=True)
def error_codes(n: int) -> Steps[list[str]]:
    """The codes of the newest failures."""
    return [row.error_code for row in (yield Call("error_codes", n=2_000))][:n]


# --- schedules


class Tick(NamedTuple):
    """One moment of a schedule that has passed."""

    at: datetime
    what: str  # fired, skipped (the job before still ran), missed (nobody fired it)
    job_id: str | None
    state: str | None


@operation(read=True)
def ticks(schedules: Sequence[ScheduleRow]) -> Steps[dict[str, list[Tick]]]:
    """The last ticks of each schedule, oldest first, with those that nobody fired."""
    fired: dict[str, dict[datetime, str | None]] = {}
    for schedule in schedules:
        rows = yield Call("ticks_of", id=schedule.id, n=TICKS)
        fired[schedule.id] = {moment(row.tick): row.job_id for row in reversed(rows)}
    asked = sorted({job_id for known in fired.values() for job_id in known.values() if job_id is not None})
    rows = (yield Call("job_states", asked=[(job_id,) for job_id in asked])) if asked else []
    states = {row.id: row.state for row in rows}
    return {schedule.id: _with_missed(schedule, fired[schedule.id], states) for schedule in schedules}


def _with_missed(schedule: ScheduleRow, fired: dict[datetime, str | None], states: dict[str, str]) -> list[Tick]:
    found = [
        Tick(at, "fired" if job_id is not None else "skipped", job_id, states.get(job_id or ""))
        for at, job_id in fired.items()
    ]
    end = schedule.paused_at or schedule.retired_at or schedule.read_at
    if fired:
        try:
            rule = parse_rule(schedule.rule, schedule.zone, seconds=True)
            due, _ = rule.ticks(min(fired) - timedelta(seconds=1), end - ON_TIME, 10 * TICKS)
        except InvalidArguments:
            due = []
        found += [Tick(at, "missed", None, None) for at in due if at not in fired]
    return sorted(found)[-TICKS:]


# --- sources


class StripMinute(NamedTuple):
    """What came of the calls to a source in one minute."""

    at: datetime
    succeeded: int
    failed: int


@operation(read=True)
def source_strips(names: Sequence[str]) -> Steps[dict[str, list[StripMinute]]]:
    """The last hour of each source, by minute, from the newest MOST_ENDS jobs that finished; quiet minutes are left
    out."""
    asked = [(name,) for name in names]
    found: dict[str, dict[datetime, list[int]]] = defaultdict(dict)
    for row in (yield Call("source_strip", asked=asked, n=MOST_ENDS, ago=-STRIP_SECONDS)) if asked else []:
        minute = found[row.source].setdefault(moment(row.at), [0, 0])
        minute[0] += int(row.succeeded)
        minute[1] += int(row.failed)
    return {name: [StripMinute(at, *numbers) for at, numbers in sorted(each.items())] for name, each in found.items()}


# --- slots


class Bar(NamedTuple):
    """One attempt in the time that a drawing shows."""

    job_id: str
    task: str
    attempt: int
    worker: str
    outcome: str
    began: datetime
    ended: datetime | None


class Lane(NamedTuple):
    """One slot of a worker, and what ran there."""

    worker: str
    slot: int
    bars: list[Bar]


@operation(read=True)
def slot_lanes(seconds: float) -> Steps[tuple[datetime, list[Lane], bool]]:
    """Attempts of the last seconds, in as many lanes as ran side by side; also the present moment, and whether all
    attempts of that time are there."""
    now = yield from clock.now().start()
    rows = yield Call("slot_bars", n=MOST_BARS, ago=-seconds)
    bars = [record(Bar, row) for row in rows if row.began is not None]
    return now, in_lanes(bars), len(rows) < MOST_BARS


def in_lanes(bars: Iterable[Bar]) -> list[Lane]:
    """Attempts in lanes without overlaps. Which slot an attempt had is not stored: the first free one is shown."""
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
