"""Failed attempts, grouped by cause."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment

MOST_FAILURES = 5_000
PARTS = 24  # columns of a trend
VARYING = re.compile(  # the parts that differ between messages with one cause
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+|\b[0-9a-f]{16,}\b|\d+(?:\.\d+)?",
    re.IGNORECASE,
)
QUOTED = re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\"|https?://\S+")


@dataclass(slots=True)
class FailureGroup:
    """Failures with one task, one error code, and one message, ignoring numbers, ids and quoted texts."""

    fingerprint: str
    task: str
    error_code: str | None
    message: str
    example: str = ""
    number: int = 0
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    trend: list[int] = field(default_factory=lambda: [0] * PARTS)
    sources: Counter[str] = field(default_factory=Counter)
    last_job_id: str | None = None


class Failures(NamedTuple):
    """Groups of failures, the most frequent first."""

    groups: list[FailureGroup]
    since: datetime
    exact: bool  # False: there were too many, and only the newest MOST_FAILURES, those after `since`, were grouped


@operation(read=True)
def failures(since: datetime, until: datetime, task: str | None = None, queue: str | None = None) -> Steps[Failures]:
    beyond = yield Call("oldest_failure", since=since, skip=MOST_FAILURES)
    since = moment(beyond[0].at) if beyond else since
    width = max((until - since).total_seconds(), 1.0) / PARTS
    given = {"since": since, "width": width, "n": MOST_FAILURES, "task": task, "queue": queue}
    found: dict[tuple[str, str | None, str], FailureGroup] = {}
    for row in (yield Call("failures", **given)):
        text = (row.message or "").partition("\n")[0]
        key = (row.task, row.error_code, normalised(text))
        group = found.get(key)
        if group is None:
            group = found[key] = FailureGroup(fingerprint(*key), *key)
        number, first, last = int(row.number), moment(row.first_at), moment(row.last_at)
        group.number += number
        group.trend[min(max(row.slot, 0), PARTS - 1)] += number
        if row.source is not None:
            group.sources[row.source] += number
        group.first_seen = first if group.first_seen is None else min(first, group.first_seen)
        if group.last_seen is None or last >= group.last_seen:
            group.last_seen, group.example, group.last_job_id = last, text, row.job_id
    groups = sorted(found.values(), key=lambda group: (-group.number, group.fingerprint))
    return Failures(groups, since, not beyond)


def normalised(message: str) -> str:
    """A message without the parts that differ from one failure to the next."""
    return VARYING.sub("<n>", QUOTED.sub("<…>", message))


def fingerprint(task: str, code: str | None, message: str) -> str:
    """Short hash of task, code and normalised message."""
    return hashlib.sha256("\0".join((task, code or "", message)).encode(errors="replace")).hexdigest()[:12]


@operation(read=True)
def error_codes(n: int) -> Steps[list[str]]:
    """The codes of the newest failures."""
    return [row.error_code for row in (yield Call("error_codes", n=2_000))][:n]
