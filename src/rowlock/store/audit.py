"""The audit: who changed jobs, queues, sources, schedules or batches, from the command line or through the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from rowlock.core.policy import DAY
from rowlock.store.engine.operation import Call, Operation, Steps, operation
from rowlock.store.engine.records import record

T = TypeVar("T")
KEEP_SECONDS = 365 * DAY
NEWEST = 2**62
MOST_TEXT = 2_000


class Actor(NamedTuple):
    """The person or program that acts, and from where."""

    who: str
    via: str  # "api" or "cli"
    address: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    id: int
    at: datetime
    who: str
    via: str
    address: str | None
    action: str
    target: str | None
    count: int
    details: Any


def write(
    actor: Actor, action: str, target: str | None, number: int = 1, details: Mapping[str, Any] | None = None
) -> Steps[int]:
    """Write an audit entry, as part of the operation that does the action. Returns the entry's id."""
    (row,) = yield Call(
        "write_audit",
        **{name: value and _storable(value) for name, value in actor._asdict().items()},
        action=action,
        target=target and _storable(target),
        number=number,
        details=json.dumps(details) if details else None,
    )
    return int(row.id)


def _storable(text: str) -> str:
    return text.replace("\0", "")[:MOST_TEXT]


@operation()
def audited(
    done: Operation[T], actor: Actor, action: str, target: str | None, details: Mapping[str, Any] | None = None
) -> Steps[T]:
    """Run an operation and write its audit entry in the same transaction."""
    answer = yield from done.start()
    yield from write(actor, action, target, details=details)
    return answer


@operation(single=True)
def write_alone(actor: Actor, action: str, target: str | None, details: Mapping[str, Any] | None = None) -> Steps[int]:
    """Write an audit entry for an action that has already been done."""
    return (yield from write(actor, action, target, details=details))


@operation(read=True)
def entries(limit: int, before: int = NEWEST) -> Steps[list[AuditEntry]]:
    """The audit entries, newest first. For the next page, pass the last entry's id as `before`."""
    rows = yield Call("list_audit", n=limit, before=before)
    return [record(AuditEntry, row, details=None if row.details is None else json.loads(row.details)) for row in rows]
