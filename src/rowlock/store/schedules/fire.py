"""Fire due ticks, and handle missed ones.

Any number of dispatchers may run `fire` concurrently. Each locks the due schedules that no other dispatcher has locked,
and writes their ticks, jobs and next ticks in one transaction, by the database's clock. So there is no leader, and a
dispatcher has no state in memory that could be lost.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from rowlock.core.errors import InvalidArguments
from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Missed, first_tick, ticks_to_fire
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import moment
from rowlock.store.engine.wake import wake_idle

ON_TIME = timedelta(seconds=30)  # a tick that is later than this counts as missed
MOST_JOBS = 2_000  # the most jobs that one transaction writes, unless a single schedule has more due ticks


class ScheduleRule(NamedTuple):
    """A schedule with its current rule. A dispatcher that can't fire it leaves it out until the rule changes."""

    id: str
    rule: str
    zone: str


class Fired(NamedTuple):
    """The result of one round of a dispatcher."""

    schedules: int  # whose next tick was written
    jobs: int
    passed_over: int  # ticks skipped because the job of an earlier tick still runs (overlap="skip")
    # Schedules that could not be fired, and why: this process can't parse the rule, which comes from a newer version of
    # Rowlock or of the time zone database, or the tick's job can't be written.
    refused: Mapping[ScheduleRule, str]


@operation(read=True)
def next_due(left_out: Collection[ScheduleRule] = ()) -> Steps[float | None]:
    """Seconds until the next tick is due; None if no schedule has a next tick."""
    rows = yield Call("next_due", left_out=list(left_out))
    return float(rows[0].seconds) if rows else None


@operation(read=True)
def due(n: int, left_out: Collection[ScheduleRule] = ()) -> Steps[list[ScheduleRule]]:
    """Up to `n` schedules with a due tick: those that `fire` would fire."""
    return [ScheduleRule(*row) for row in (yield Call("list_due", n=n, left_out=list(left_out)))]


@operation(single=True, repeatable=True)
def tell(schedule_id: str, problem: str) -> Steps[None]:
    """Store why a schedule's tick could not be fired. The next tick that fires deletes this text."""
    yield Call("tell_problem", id=schedule_id, problem=problem[:1000].replace("\0", ""))


@operation()
def fire(n: int, left_out: Collection[ScheduleRule] = ()) -> Steps[Fired]:
    """Fire the due ticks of up to `n` schedules, without those in `left_out`, which other dispatchers may fire."""
    return (yield from fire_locked((yield Call("lock_due", n=n, left_out=list(left_out)))))


def fire_locked(rows: Sequence[Row]) -> Steps[Fired]:
    """Fire the due ticks of schedules whose rows (the part `due_schedule`) are locked, and write their next ticks."""
    unfinished = yield from _with_unfinished_jobs(rows)
    moved: list[tuple[Any, ...]] = []
    fired: list[tuple[str, datetime, str, float]] = []
    passed_over: list[tuple[str, datetime, None]] = []
    refused: dict[ScheduleRule, str] = {}
    for schedule in map(Due, rows):
        if len(fired) >= MOST_JOBS:
            break  # the other schedules stay due
        ticks = schedule.ticks()
        if schedule.overlap == "skip":
            ticks = ticks[-1:]  # two ticks that fire together would overlap
            if schedule.rule.id in unfinished:
                passed_over += [(schedule.rule.id, tick, None) for tick in ticks]
                ticks = []
        fired += [(schedule.rule.id, tick, new_id(), schedule.draw()) for tick in ticks]
        if schedule.problem:
            refused[schedule.rule] = schedule.problem
        moved.append((schedule.rule.id, schedule.first_after_now(), schedule.problem))
    fresh = yield from _fire(fired)
    if passed_over:
        yield Call("write_ticks", fired=passed_over)
    if moved:
        last = {row[0]: row for row in fresh}  # the last tick of each schedule
        none = (None, None, None)
        yield Call("move_on", moved=[(s, at, *last.get(s, none)[1:3], problem) for s, at, problem in moved])
    return Fired(len(moved), len(fresh), len(passed_over), refused)


def _with_unfinished_jobs(rows: Sequence[Row]) -> Steps[set[str]]:
    """The ids of those schedules with `overlap="skip"` that have an unfinished job."""
    asked = [(row.id,) for row in rows if row.overlap == "skip"]
    return {row.id for row in (yield Call("schedules_at_work", asked=asked))} if asked else set()


def _fire(fired: list[tuple[str, datetime, str, float]]) -> Steps[list[tuple[str, datetime, str, float]]]:
    """Write ticks, and a job for each tick that had no row yet. Returns the new ticks."""
    if not fired:
        return []
    written = {row.job_id for row in (yield Call("write_ticks", fired=[row[:3] for row in fired]))}
    fresh = [row for row in fired if row[2] in written]
    if fresh:
        yield Call("fire_jobs", fired=fresh)
        yield from wake_idle()
    return fresh


class Due:
    """A schedule whose row is locked, with its due ticks; if it is paused, those that were due when it was paused."""

    def __init__(self, row: Row) -> None:
        self.rule = ScheduleRule(row.id, row.rule, row.zone)
        self.problem: str | None = None  # why the rule cannot be parsed
        try:
            self._parsed = parse_rule(row.rule, row.zone, seconds=True)
        except InvalidArguments as error:
            self.problem = str(error)
        self._missed = Missed(row.missed, row.missed_most, row.missed_seconds)
        self.overlap, self._jitter = row.overlap, row.jitter_seconds
        self._starts_at, self._ends_at = moment(row.starts_at), moment(row.ends_at)
        self.next_tick: datetime | None = moment(row.next_tick)
        self._now: datetime = moment(row.now)
        paused_at = moment(row.paused_at) or self._now
        self._as_of = min(paused_at, self._now)  # the pause may have been written by a clock that was ahead

    def ticks(self) -> list[datetime]:
        """The ticks to fire now. None of them if the rule can't be parsed."""
        if self.problem is not None:
            return []
        assert self.next_tick is not None
        until = self._as_of if self._ends_at is None else min(self._as_of, self._ends_at)
        return ticks_to_fire(self._parsed, self.next_tick, until, self._as_of, self._missed, ON_TIME)

    def first_after_now(self) -> datetime | None:
        """The first tick after now; the stored next tick if the rule can't be parsed."""
        if self.problem is not None:
            return self.next_tick
        return first_tick(self._parsed, self._starts_at, self._ends_at, self._now)

    def put_right(self) -> datetime | None:
        """The next tick by the corrected clock. A due tick stays; a later one moves up to the first tick after now."""
        first = self.first_after_now()
        return first if self.next_tick is None or (first is not None and first < self.next_tick) else self.next_tick

    def draw(self) -> float:
        return random.random() * self._jitter if self._jitter else 0.0
