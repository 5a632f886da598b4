"""The newest log lines of jobs, for tasks that keep them. The page of a job shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rowlock.core.policy import DAY
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record

KEPT = 500  # lines of one job
MOST_TEXT = 2_000  # characters of one line
SECONDS = 30 * DAY


class NewLine(NamedTuple):
    """A line to be written."""

    job_id: str
    attempt: int
    ago: float  # seconds
    level: str
    message: str
    skipped: int = 0  # number of the job's lines that were dropped right before this one


class Line(NamedTuple):
    seq: int
    attempt: int
    at: datetime
    level: str
    message: str


class LogPage(NamedTuple):
    """Some lines of a job, oldest first, and the number of older ones that were deleted."""

    items: list[Line]
    dropped: int


@operation()
def write(lines: Sequence[NewLine]) -> Steps[None]:
    """Append lines in this order, and delete the oldest lines of jobs that have too many."""
    numbers, rows = Counter[str](), []
    for line in lines:
        numbers[line.job_id] += line.skipped + 1
        message = line.message.replace("\0", "")[:MOST_TEXT]
        rows.append((line.job_id, numbers[line.job_id], line.attempt, -max(line.ago, 0.0), line.level, message))
    yield Call("write_logs", line=rows)
    yield Call("cut_logs", asked=[(job_id,) for job_id in sorted(numbers)], n=KEPT)


@operation(read=True)
def read(job_id: str, after: int = 0, limit: int = 200) -> Steps[LogPage]:
    """The newest lines of a job after the line `after`."""
    known = valid_id(job_id)
    if known is None:
        return LogPage([], 0)
    rows = yield Call("read_logs", job_id=known, after=after, n=limit)
    first = yield Call("first_log", job_id=known)
    found = [record(Line, row) for row in reversed(rows)]
    return LogPage(found, int(first[0].seq) - 1 if first else 0)
