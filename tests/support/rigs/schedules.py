"""Short words for what tests do to schedules over and over."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rowlock.core.schedules.rule import parse_rule
from rowlock.core.schedules.schedule import Schedule
from rowlock.store.schedules import fire as firing
from rowlock.store.schedules import schedules
from rowlock.store.schedules.schedules import ScheduleRow
from support.rigs.rig import Rig, moment

LEASE = 60.0
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)  # where the fake clock starts


def at(seconds: float) -> datetime:
    return NEW_YEAR + timedelta(seconds=seconds)


def set_to_new_year(rig: Rig) -> None:
    """Set the clock to where a fake clock starts: for rows of a table, which share one clock."""
    rig.clock.move((NEW_YEAR - rig.clock.now()).total_seconds())


def schedule(name: str = "s", rule: str = "every 30s", *, zone: str = "UTC", task: str = "t", **given: Any) -> Schedule:
    return Schedule(name, task, parse_rule(rule, zone, seconds=True), **given)


async def declare(rig: Rig, *found: Schedule, origin: str = "code", started_at: Any = None) -> schedules.Declared:
    return await rig.store.run(schedules.declare(found, origin, started_at))


class Fired(NamedTuple):
    """What a round did, in numbers."""

    schedules: int
    jobs: int
    passed_over: int


async def fire(rig: Rig, n: int = 100) -> Fired:
    return Fired(*(await rig.store.run(firing.fire(n)))[:3])


async def shown(rig: Rig, name: str = "s") -> ScheduleRow:
    (row,) = await rig.store.run(schedules.schedules(1, only=name))
    return row


async def ticks(rig: Rig, name: str = "s") -> list[tuple[datetime, str | None]]:
    """Every row of `ticks` of one schedule: the nominal moment, and the job."""
    found = await rig.fetch(
        "SELECT tick, CAST(job_id AS text) FROM {t}ticks WHERE schedule_id = $1 ORDER BY tick", name
    )
    return [(moment(tick) or NEW_YEAR, job) for tick, job in found]


async def fired(rig: Rig, name: str = "s") -> list[datetime]:
    """The ticks of one schedule's jobs, oldest first."""
    return sorted(row["tick"] for row in (await rig.rows()).values() if row["schedule_id"] == name and row["tick"])


async def break_rule(rig: Rig, name: str = "s", rule: str = "whenever 3 4") -> None:
    """Write a rule that this version does not understand, as a newer one may."""
    await rig.fetch("UPDATE {t}schedules SET rule = $1 WHERE id = $2", rule, name)
