"""The jobs that run now."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record

MOST_RUNNING = 2_000


class Running(NamedTuple):
    """A job that runs now."""

    job_id: str
    task: str
    queue: str
    attempt: int
    worker: str
    since: datetime | None
    seconds: float
    progress: int | None
    phase: str | None


@operation(read=True)
def running() -> Steps[list[Running]]:
    """What runs now, up to MOST_RUNNING jobs."""
    rows = yield Call("running_jobs", n=MOST_RUNNING)
    return [record(Running, row, seconds=float(row.seconds or 0.0)) for row in rows]
