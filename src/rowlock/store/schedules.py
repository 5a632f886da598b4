"""Schedules: declaring them, firing due ticks, and what happens to missed ticks.

Any number of dispatchers run `fire` at the same time. Each locks the due schedules that no other dispatcher has
locked, and writes ticks, jobs and the next tick in one transaction, by the database's clock. So there is no leader, and
nothing in memory that could be lost.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from rowlock.core.cron import Rule, parse_rule
from rowlock.core.errors import InvalidArguments, NotAllowed, ScheduleNotFound
from rowlock.core.options import scheduled
from rowlock.core.schedule import Missed, Schedule, chosen
from rowlock.store.engines.operation import Call, Row, Steps, operation
from rowlock.store.ids import new_id
from rowlock.store.stored_json import parsed
from rowlock.store.times import moment
from rowlock.store.wake import wake_dispatchers, wake_idle

ON_TIME = timedelta(seconds=30)  # later than this, a tick was missed
AHEAD_SECONDS = 1.0  # a time that is further in the future was written while the database's clock was ahead
MOST_JOBS = 2_000  # of one transaction; more if one schedule alone has more


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule, as a reader sees it."""

    id: str
    task: str
    args: Any
    rule: str
    zone: str
    missed: str
    missed_most: int
    missed_seconds: float
    overlap: str
    queue: str
    priority: int
    owner: str | None
    source: str | None
    max_attempts: int
    timeout_seconds: float | None
    jitter_seconds: float
    starts_at: datetime | None
    ends_at: datetime | None
    origin: str
    paused_at: datetime | None
    retired_at: datetime | None
    last_tick: datetime | None
    last_job: str | None  # of the last tick; before there was one, what was run by hand
    next_tick: datetime | None
    problem: str | None
    last_state: str | None  # of that job; None when it was pruned
    read_at: datetime  # by the database's clock
    fired_ahead: frozenset[datetime] = frozenset()  # ticks after that moment which a clock that was ahead has fired

    def coming(self, now: datetime | None, n: int) -> list[datetime]:
        """The next `n` ticks after a moment, without one after it was read; ticks that have fired do not fire again."""
        if self.paused_at is not None or self.retired_at is not None or self.problem is not None:
            return []
        rule = parse_rule(self.rule, self.zone, seconds=True)
        after = now or self.read_at
        after = max(after, self.starts_at - timedelta(seconds=1)) if self.starts_at else after
        found: list[datetime] = []
        while len(found) < n and (tick := rule.next(after)) is not None:
            if self.ends_at is not None and tick > self.ends_at:
                break
            if tick not in self.fired_ahead:
                found.append(tick)
            after = tick
        return found


class Unread(NamedTuple):
    """A schedule whose rule or zone this process does not understand: a newer version, or newer zones, wrote it."""

    id: str
    rule: str
    zone: str


class Fired(NamedTuple):
    """What one round of a dispatcher did."""

    schedules: int  # fired or moved on
    jobs: int
    passed_over: int  # ticks skipped because the job of an earlier tick still runs (overlap="skip")
    unread: Mapping[Unread, str]  # schedules that could not be read, and why


class Declared(NamedTuple):
    """What became of definitions."""

    written: set[str]
    refused: dict[str, str]  # by id: the origin (code, config, by hand) of the schedule that has this name
    back: set[str]  # schedules that were retired and are declared again
    retired: set[str]  # schedules that stay retired: a process that started later has written another definition


# --- definitions


@operation()
def declare(schedules: Sequence[Schedule], origin: str, started_at: datetime | float | None) -> Steps[Declared]:
    """Write definitions. `started_at` is when the declaring process started, by the database's clock; None is now. One
    that is added by hand and has no tick left is refused; code and config may have one that has fired."""
    now = moment((yield Call("clock"))[0].now)
    before = yield Call("schedule_origins", asked=[(schedule.id,) for schedule in schedules])
    if origin == "runtime":
        known = {(row.id, row.rule, row.zone) for row in before}
        for schedule in schedules:
            if (schedule.id, schedule.rule.text, schedule.rule.zone) not in known:
                _check_coming(schedule, now)
    rows = [_row(schedule, now) for schedule in sorted(schedules, key=lambda schedule: schedule.id)]
    written = yield Call("declare_schedules", s=rows, origin=origin, started_at=started_at)
    done = {row.id for row in written}
    yield from wake_dispatchers()
    rest = [(schedule.id,) for schedule in schedules if schedule.id not in done]
    there = (yield Call("schedule_origins", asked=rest)) if rest else []
    return Declared(
        done,
        refused={row.id: row.origin for row in there if row.origin != origin},
        back={row.id for row in before if row.retired} & done,
        retired={row.id for row in there if row.origin == origin and row.retired},
    )


def _check_coming(schedule: Schedule, now: datetime) -> None:
    if _first(schedule.rule, schedule.starts_at, schedule.ends_at, now) is None:
        within = "" if schedule.ends_at is None else f" and before its end {schedule.ends_at.isoformat()}"
        raise InvalidArguments(
            f"schedule {schedule.id!r}: {schedule.rule.text!r} has no tick after now ({now:%Y-%m-%dT%H:%M:%SZ})"
            f"{within}: it would never fire; give a later time"
        )


def _row(s: Schedule, now: datetime) -> tuple[Any, ...]:
    return (
        *(s.id, s.task, s.args, s.rule.text, s.rule.zone, s.missed.kind, s.missed.most, s.missed.window, s.overlap),
        *(s.jitter, s.starts_at, s.ends_at, _first(s.rule, s.starts_at, s.ends_at, now)),
        *scheduled(s),
    )


def _first(rule: Rule, starts_at: datetime | None, ends_at: datetime | None, now: datetime) -> datetime | None:
    """The first tick after now, within the schedule's life."""
    after = now if starts_at is None else max(now, starts_at - timedelta(seconds=1))
    tick = rule.next(after)
    return None if tick is None or (ends_at is not None and tick > ends_at) else tick


# --- ticks


@operation(read=True)
def next_due(unread: Collection[Unread] = ()) -> Steps[float | None]:
    """Seconds until the next tick is due; None when there is none."""
    rows = yield Call("next_due", unread=list(unread))
    return float(rows[0].seconds) if rows else None


@operation(read=True)
def due(n: int, unread: Collection[Unread] = ()) -> Steps[list[Unread]]:
    """Up to `n` schedules that have a tick due, in the form in which `unread` names them."""
    return [Unread(*row) for row in (yield Call("list_due", n=n, unread=list(unread)))]


@operation(single=True, repeatable=True)
def tell(schedule_id: str, problem: str) -> Steps[None]:
    """Write down why a schedule's tick could not be fired; the next one that fires takes it back."""
    yield Call("tell_problem", id=schedule_id, problem=problem[:1000].replace("\0", ""))


@operation()
def fire(n: int, unread: Collection[Unread] = ()) -> Steps[Fired]:
    """Fire up to `n` schedules that have a tick due; the `unread` ones are left to other dispatchers."""
    rows = yield Call("lock_due", n=n, unread=list(unread))
    return (yield from _deal_with([_Due(row) for row in rows]))


def _deal_with(due: Sequence[_Due]) -> Steps[Fired]:
    """Fire what is due of schedules whose rows are locked, and move them on."""
    at_work = yield from _at_work(due)
    moved: list[tuple[Any, ...]] = []
    fired: list[tuple[str, datetime, str, float]] = []
    passed_over: list[tuple[str, datetime, None]] = []
    problems: dict[Unread, str] = {}
    for schedule in due:
        if len(fired) >= MOST_JOBS:
            break  # the rest is still due
        ticks, problem = schedule.ticks()
        if schedule.overlap == "skip":
            ticks = ticks[-1:]  # jobs of two ticks at once would overlap each other
            if schedule.id in at_work:
                passed_over += [(schedule.id, tick, None) for tick in ticks]
                ticks = []
        fired += [(schedule.id, tick, new_id(), schedule.draw()) for tick in ticks]
        if problem:
            problems[schedule.unread] = problem
        moved.append((schedule.id, schedule.next_tick if problem else schedule.next(), problem))
    fresh = yield from _fire(fired)
    if passed_over:
        yield Call("write_ticks", fired=passed_over)
    if moved:
        last = {row[0]: row for row in fresh}  # the last tick of each schedule
        none = (None, None, None)
        yield Call("move_on", moved=[(s, at, *last.get(s, none)[1:3], problem) for s, at, problem in moved])
    return Fired(len(moved), len(fresh), len(passed_over), problems)


def _at_work(due: Sequence[_Due]) -> Steps[set[str]]:
    """The schedules among these that have a job which is not final; only `overlap="skip"` asks for it."""
    asked = [(schedule.id,) for schedule in due if schedule.overlap == "skip"]
    return {row.id for row in (yield Call("schedules_at_work", asked=asked))} if asked else set()


def _fire(fired: list[tuple[str, datetime, str, float]]) -> Steps[list[tuple[str, datetime, str, float]]]:
    """Write ticks, and a job for each tick that was not there; answers the new ticks."""
    if not fired:
        return []
    written = {row.job_id for row in (yield Call("write_ticks", fired=[row[:3] for row in fired]))}
    fresh = [row for row in fired if row[2] in written]
    if fresh:
        yield Call("fire_jobs", fired=fresh)
        yield from wake_idle()
    return fresh


class _Due:
    """A schedule whose row is locked, and its due ticks; if it is paused, the ticks that were due at the pause."""

    def __init__(self, row: Row, paused_at: datetime | None = None) -> None:
        self.id, self.unread = row.id, Unread(row.id, row.rule, row.zone)
        self._missed = Missed(row.missed, row.missed_most, row.missed_seconds)
        self.overlap, self._jitter = row.overlap, row.jitter_seconds
        self._starts_at, self._ends_at = moment(row.starts_at), moment(row.ends_at)
        self.next_tick: datetime | None = moment(row.next_tick)
        self._now: datetime = moment(row.now)
        self._looked_at = min(paused_at or self._now, self._now)  # a clock that was ahead may have written the pause

    def ticks(self) -> tuple[list[datetime], str | None]:
        """The ticks to fire now, and what is wrong with the rule if another version wrote one we cannot read."""
        try:
            self._parsed = parse_rule(self.unread.rule, self.unread.zone, seconds=True)
        except InvalidArguments as error:
            return [], str(error)
        assert self.next_tick is not None
        until = self._looked_at if self._ends_at is None else min(self._looked_at, self._ends_at)
        return chosen(self._parsed, self.next_tick, until, self._looked_at, self._missed, ON_TIME), None

    def next(self) -> datetime | None:
        """The first tick that is neither fired nor skipped."""
        return _first(self._parsed, self._starts_at, self._ends_at, self._now)

    def put_right(self) -> datetime | None:
        """The next tick by the corrected clock: due ticks stay due, a next tick that is further away than the rule says
        is moved."""
        try:
            self._parsed = parse_rule(self.unread.rule, self.unread.zone, seconds=True)
        except InvalidArguments:
            return self.next_tick
        first = self.next()
        return first if self.next_tick is None or (first is not None and first < self.next_tick) else self.next_tick

    def draw(self) -> float:
        """The jitter of one job, in seconds."""
        return random.random() * self._jitter if self._jitter else 0.0


@operation(repeatable=True)
def put_right(n: int) -> Steps[list[str]]:
    """Correct up to `n` schedules that were moved on while the database's clock was ahead: otherwise they would not
    fire before that moment. Answers which."""
    rows = yield Call("written_ahead", n=n, ahead=AHEAD_SECONDS)
    if rows:
        yield Call("put_right", healed=[(row.id, _Due(row).put_right()) for row in rows])
    return [row.id for row in rows]


@operation()
def run_now(schedule_id: str) -> Steps[str]:
    """Fire a schedule by hand, now; its ticks are not touched. Answers the job."""
    rows = yield Call("lock_schedule", id=schedule_id)
    if not rows:
        raise ScheduleNotFound(schedule_id)
    job_id = new_id()
    yield Call("fire_jobs", fired=[(schedule_id, None, job_id, 0.0)])
    yield Call("last_job", id=schedule_id, job_id=job_id)
    yield from wake_idle()
    return job_id


# --- by hand


@operation()
def pause(schedule_id: str) -> Steps[None]:
    """No more ticks until it is resumed."""
    if not (yield Call("pause_schedule", id=schedule_id)):
        raise ScheduleNotFound(schedule_id)


@operation()
def resume(schedule_id: str) -> Steps[None]:
    """Ticks again, from now on, and its stored problem is deleted. A tick that was due before the pause fires now, and
    counts as late as it was at the pause."""
    rows = yield Call("lock_schedule", id=schedule_id)
    if not rows:
        raise ScheduleNotFound(schedule_id)
    row = rows[0]
    rule = parse_rule(row.rule, row.zone, seconds=True)
    owed, paused_at = moment(row.next_tick), moment(row.paused_at)
    if owed is not None and paused_at is not None and owed <= paused_at:
        yield from _deal_with([_Due(row, paused_at)])
    next_tick = _first(rule, moment(row.starts_at), moment(row.ends_at), moment(row.now))
    if paused_at is None and owed is not None and (next_tick is None or owed <= next_tick):
        next_tick = owed  # what one that was not paused owes, it still owes
    yield Call("resume_schedule", id=schedule_id, next_tick=next_tick)
    yield from wake_dispatchers()


@operation()
def remove(schedule_id: str) -> Steps[None]:
    """Forget a schedule that was added by hand, or one that is retired."""
    there = yield Call("schedule_origins", asked=[(schedule_id,)])
    if not there:
        raise ScheduleNotFound(schedule_id)
    (row,) = there
    if row.origin != "runtime" and not row.retired:
        raise NotAllowed(f"schedule {schedule_id!r} comes from the {row.origin}: take it out there, or pause it")
    yield Call("remove_schedule", id=schedule_id)


# --- reading


@operation(read=True)
def schedules(n: int, after: str = "", only: str | None = None) -> Steps[list[ScheduleRow]]:
    """Schedules by name."""
    found = [_schedule(row) for row in (yield Call("list_schedules", n=n, id=after, only=only))]
    ahead: dict[str, set[datetime]] = {}
    for row in (yield Call("ticks_ahead", asked=[(row.id,) for row in found])):
        ahead.setdefault(row.schedule_id, set()).add(moment(row.tick))
    return [replace(row, fired_ahead=frozenset(ahead[row.id])) if row.id in ahead else row for row in found]


def _schedule(row: Row) -> ScheduleRow:
    times = ("starts_at", "ends_at", "paused_at", "retired_at", "last_tick", "next_tick", "read_at")
    values = {field.name: getattr(row, field.name) for field in fields(ScheduleRow) if field.name != "fired_ahead"}
    values |= {name: moment(values[name]) for name in times} | {"args": parsed(row.args)[0]}
    return ScheduleRow(**values)


@operation(single=True, repeatable=True)
def prune(ago: float, n: int) -> Steps[int]:
    """Delete up to `n` rows of ticks that fired more than this time ago."""
    return len((yield Call("prune_ticks", ago=-ago, n=n)))
