"""Corrects what was written while the database's clock was ahead: leases, delays of retries, sources and schedules.

The lease of a dead worker and the delay of a retry that were computed from a time in the future would end only after
that time. `heartbeat_at` and `updated_at` hold the time from which each was computed.
"""

from __future__ import annotations

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.schedules.fire import Due

LEASES = 10_000  # in one statement
AHEAD_SECONDS = 1.0  # a time that is further in the future was written while the database's clock was ahead


@operation(repeatable=True)
def put_jobs_right(waiting: int) -> Steps[tuple[int, int]]:
    """Correct running jobs, and of the first `waiting` jobs that wait for their time the ones that have run before;
    returns how many of each."""
    leases = yield Call("put_leases_right", n=LEASES)
    retries = (yield Call("put_waiting_right", n=waiting)) if waiting else []
    return len(leases), len(retries)


@operation(single=True, repeatable=True)
def put_sources_right() -> Steps[list[str]]:
    """Correct sources: until the time in the future, token buckets would not fill and pauses would not end. Returns
    their names."""
    return [row.name for row in (yield Call("put_sources_right"))]


@operation(repeatable=True)
def put_schedules_right(n: int) -> Steps[list[str]]:
    """Correct up to `n` schedules, which would not fire before the time in the future. Returns their ids."""
    rows = yield Call("written_ahead", n=n, ahead=AHEAD_SECONDS)
    if rows:
        yield Call("put_right", healed=[(row.id, Due(row).put_right()) for row in rows])
    return [row.id for row in rows]
