"""The last ticks of schedules, including missed ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rowlock.core.errors import InvalidArguments
from rowlock.core.schedules.rule import parse_rule
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment
from rowlock.store.schedules.fire import ON_TIME
from rowlock.store.schedules.schedules import ScheduleRow

TICKS = 30


class Tick(NamedTuple):
    """A past tick of a schedule."""

    at: datetime
    what: str  # fired, skipped (the previous job was still running), missed (no dispatcher fired it)
    job_id: str | None
    state: str | None


@operation(read=True)
def ticks(schedules: Sequence[ScheduleRow]) -> Steps[dict[str, list[Tick]]]:
    """The last ticks of each schedule, oldest first, including missed ones."""
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
