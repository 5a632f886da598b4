"""The database's clock, by which all leases, delays and ticks are measured."""

from __future__ import annotations

from datetime import datetime

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment


@operation(read=True)
def now() -> Steps[datetime]:
    (clock,) = yield Call("clock")
    at: datetime = moment(clock.now)
    return at
