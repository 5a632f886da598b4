"""Clocks: the database's, which measures all leases, delays and ticks, and this machine's, with which a worker tracks
how long it has held a lease."""

from __future__ import annotations

import time
from datetime import datetime

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment


@operation(read=True)
def now() -> Steps[datetime]:
    (clock,) = yield Call("clock")
    at: datetime = moment(clock.now)
    return at


def boottime() -> float:
    """A monotonic clock that also counts while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
