"""Correct jobs that were written while the database's clock was ahead.

A lease of a dead worker and the delay of a retry that were computed from a time in the future would end only after that
time. `heartbeat_at` and `updated_at` hold the time from which each was computed.
"""

from __future__ import annotations

from datetime import datetime

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment

LEASES = 10_000  # in one statement


@operation(read=True)
def now() -> Steps[datetime]:
    """The database's clock."""
    (clock,) = yield Call("clock")
    at: datetime = moment(clock.now)
    return at


@operation(repeatable=True)
def put_right(waiting: int) -> Steps[tuple[int, int]]:
    """Correct running jobs, and of the first `waiting` jobs that wait for their time the ones that have run before;
    returns how many of each."""
    leases = yield Call("put_leases_right", n=LEASES)
    retries = (yield Call("put_waiting_right", n=waiting)) if waiting else []
    return len(leases), len(retries)
