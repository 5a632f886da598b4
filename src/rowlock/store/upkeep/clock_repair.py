"""Correct times that were written while the database's clock was ahead, in leases, retries, sources and schedules.

A dead worker's lease, or a retry's delay, that was computed from a time in the future would not end before that time.
The columns `heartbeat_at` and `updated_at` hold the time from which it was computed.
"""

from __future__ import annotations

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.schedules.fire import Due

LEASES = 10_000  # corrected by one statement
AHEAD_SECONDS = 1.0  # a time further in the future than this was written while the database's clock was ahead


@operation(repeatable=True)
def put_jobs_right(waiting: int) -> Steps[tuple[int, int]]:
    """Correct leases, and the delays of retries among the first `waiting` delayed jobs. Returns how many of each."""
    leases = yield Call("put_leases_right", n=LEASES)
    retries = (yield Call("put_waiting_right", n=waiting)) if waiting else []
    return len(leases), len(retries)


@operation(single=True, repeatable=True)
def put_sources_right() -> Steps[list[str]]:
    """Correct sources whose token buckets would not fill, or whose pauses would not end, before a time in the future.
    Returns their names."""
    return [row.name for row in (yield Call("put_sources_right"))]


@operation(repeatable=True)
def put_schedules_right(n: int) -> Steps[list[str]]:
    """Correct up to `n` schedules that would not fire before a time in the future. Returns their ids."""
    rows = yield Call("written_ahead", n=n, ahead=AHEAD_SECONDS)
    if rows:
        yield Call("put_right", healed=[(row.id, Due(row).put_right()) for row in rows])
    return [row.id for row in rows]
