"""The database's clock, by which all leases, delays and ticks are measured; and this machine's, by which a worker
counts how long it has held a lease."""

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
    """Seconds that also pass while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
