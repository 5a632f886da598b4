"""Schedules: declare, pause, run by hand, read. Their ticks fire in fire.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from rowlock.core.errors import InvalidArguments, NotAllowed, ScheduleNotFound
from rowlock.core.options import scheduled
from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Schedule, first_tick
from rowlock.store.engine import clock
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment, parsed, record
from rowlock.store.engine.wake import wake_dispatchers, wake_idle
from rowlock.store.schedules.fire import fire_locked


@dataclass(frozen=True, slots=True)
class ScheduleRow:
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
    last_job: str | None  # the job of the last tick; before the first tick, of the last run by hand
    next_tick: datetime | None
    problem: str | None
    last_state: str | None  # the state of that job; None if it was pruned
    read_at: datetime  # by the database's clock
    fired_ahead: frozenset[datetime] = frozenset()  # later ticks that have fired already, by a clock that was ahead

    def coming(self, now: datetime | None, n: int) -> list[datetime]:
        """The next `n` ticks after `now`, by default after the row was read, without ticks that have fired already."""
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


class Declared(NamedTuple):
    """The results of declaring schedules, by id."""

    written: set[str]
    refused: dict[str, str]  # the origin (code, config, by hand) of the schedule that already has this name
    back: set[str]  # schedules that were retired and are in use again
    retired: set[str]  # schedules that stay retired: a process that started later has written another definition


# --- definitions


@operation()
def declare(schedules: Sequence[Schedule], origin: str, started_at: datetime | float | None) -> Steps[Declared]:
    """Write definitions. `started_at` is when the declaring process started, by the database's clock (None: now). A
    schedule without a future tick is refused by hand, but allowed in code and config, where it may have fired."""
    now = yield from clock.now().start()
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
    if first_tick(schedule.rule, schedule.starts_at, schedule.ends_at, now) is None:
        within = "" if schedule.ends_at is None else f" and before its end {schedule.ends_at.isoformat()}"
        raise InvalidArguments(
            f"schedule {schedule.id!r}: {schedule.rule.text!r} has no tick after now ({now:%Y-%m-%dT%H:%M:%SZ})"
            f"{within}: it would never fire; give a later time"
        )


def _row(s: Schedule, now: datetime) -> tuple[Any, ...]:
    return (
        *(s.id, s.task, s.args, s.rule.text, s.rule.zone, s.missed.kind, s.missed.most, s.missed.window, s.overlap),
        *(s.jitter, s.starts_at, s.ends_at, first_tick(s.rule, s.starts_at, s.ends_at, now)),
        *scheduled(s),
    )


@operation()
def run_now(schedule_id: str) -> Steps[str]:
    """Run a schedule's task now, by hand, without changing its ticks. Returns the job's id."""
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
    """Stop a schedule's ticks until it is resumed."""
    if not (yield Call("pause_schedule", id=schedule_id)):
        raise ScheduleNotFound(schedule_id)


@operation()
def resume(schedule_id: str) -> Steps[None]:
    """Let a schedule's ticks fire again from now on, and delete its stored problem. A tick that was due before the
    pause fires now, and counts as late as it was when the pause began."""
    rows = yield Call("lock_schedule", id=schedule_id)
    if not rows:
        raise ScheduleNotFound(schedule_id)
    row = rows[0]
    rule = parse_rule(row.rule, row.zone, seconds=True)
    owed, paused_at = moment(row.next_tick), moment(row.paused_at)
    if owed is not None and paused_at is not None and owed <= paused_at:
        yield from fire_locked([row])
    next_tick = first_tick(rule, moment(row.starts_at), moment(row.ends_at), moment(row.now))
    if paused_at is None and owed is not None and (next_tick is None or owed <= next_tick):
        next_tick = owed  # it wasn't paused, so a tick that is due stays due
    yield Call("resume_schedule", id=schedule_id, next_tick=next_tick)
    yield from wake_dispatchers()


@operation()
def remove(schedule_id: str) -> Steps[None]:
    """Delete a schedule that was added by hand or is retired."""
    there = yield Call("schedule_origins", asked=[(schedule_id,)])
    if not there:
        raise ScheduleNotFound(schedule_id)
    (row,) = there
    if row.origin != "runtime" and not row.retired:
        raise NotAllowed(f"schedule {schedule_id!r} comes from the {row.origin}: remove it there, or pause it")
    yield Call("remove_schedule", id=schedule_id)


# --- reading


@operation(read=True)
def schedules(n: int, after: str = "", only: str | None = None) -> Steps[list[ScheduleRow]]:
    rows = yield Call("list_schedules", n=n, id=after, only=only)
    ahead: dict[str, set[datetime]] = {row.id: set() for row in rows}
    for tick in (yield Call("ticks_ahead", asked=[(row.id,) for row in rows])):
        ahead[tick.schedule_id].add(moment(tick.tick))
    return [record(ScheduleRow, row, args=parsed(row.args)[0], fired_ahead=frozenset(ahead[row.id])) for row in rows]
