"""Jobs after the database's clock was ahead for a time and has been put right.

What was counted from a moment that has not come yet would stand still until then: leases of workers that have died
since, and the delays of retries. `updated_at` and `heartbeat_at` say from which moment each was counted.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rowlock.store.engines.operation import Call, Steps, operation
from rowlock.store.times import moment

LEASES = 10_000  # in one statement


class PutRight(NamedTuple):
    """How many jobs were put right."""

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
    """Put running jobs right, and of the first `waiting` that wait for their time those that have run before."""
    leases = yield Call("put_leases_right", n=LEASES)
    retries = (yield Call("put_waiting_right", n=waiting)) if waiting else []
    return PutRight(len(leases), len(retries))
