"""Correct jobs that were written while the database's clock was ahead.

What was counted from a time in the future would wait until then: leases of workers that have died since, and the delays
of retries. `heartbeat_at` and `updated_at` say from which time each was counted.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rowlock.store.engines.operation import Call, Steps, operation
from rowlock.store.times import moment

LEASES = 10_000  # in one statement


class PutRight(NamedTuple):
    """How many jobs were corrected."""

    leases: int
    waiting: int


@operation(read=True)
def now() -> Steps[datetime]:
    """The database's clock."""
    (clock,) = yield Call("clock")
    at: datetime = moment(clock.now)
    return at


@operation(repeatable=True)
def put_right(waiting: int) -> Steps[PutRight]:
    """Correct running jobs, and of the first `waiting` jobs that wait for their time the ones that have run before."""
    leases = yield Call("put_leases_right", n=LEASES)
    retries = (yield Call("put_waiting_right", n=waiting)) if waiting else []
    return PutRight(len(leases), len(retries))
