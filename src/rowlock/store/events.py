"""What happened to jobs that have an owner, for clients that watch.

Triggers write an event in the transaction of its change. On PostgreSQL events do not become visible in the order of
their ids: a transaction that took a small id may commit after one that took a larger id. `news` therefore also tells
which transactions are still running, so that its reader knows when a missing id will never come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rowlock.core.states import State
from rowlock.store.engines.operation import Call, Steps, operation
from rowlock.store.records import record

KEPT_SECONDS = 3600.0  # how long a client may be away and still go on without a gap


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a job."""

    id: int
    job_id: str
    owner: str
    type: str  # job.progress, job.completed, job.failed, job.cancelled
    task: str
    state: State
    attempt: int
    progress: int | None
    phase: str | None
    message: str | None
    result_uri: str | None
    result_checksum: str | None
    error_code: str | None
    error_message: str | None
    at: datetime


class News(NamedTuple):
    """Events that were not there before, and which transactions had begun and not ended when they were read."""

    events: list[Event]
    running_from: int  # every transaction before this number has ended
    running_to: int  # no transaction from this number on has begun


@operation(read=True)
def bounds() -> Steps[tuple[int | None, int]]:
    """The ids of the oldest and of the newest event; none and 0 where there are no events."""
    (row,) = yield Call("event_bounds")
    return row.oldest, row.newest or 0


@operation(read=True)
def news(newest: int, missing: Sequence[int], limit: int) -> Steps[News]:
    """Events after the id `newest`, and those of the missing ids that are there by now; in one snapshot with the
    numbers of the transactions that run."""
    rows = yield Call("new_events", id=newest, n=limit, missing=[(str(event_id),) for event_id in missing])
    return News([record(Event, row) for row in rows if row.id is not None], rows[0].running_from, rows[0].running_to)


@operation(read=True)
def after(event_id: int, limit: int, owner: str | None = None) -> Steps[list[Event]]:
    """Events after an id, oldest first; with `owner`, of that owner alone."""
    name = "events_after" if owner is None else "events_of_owner"
    return [record(Event, row) for row in (yield Call(name, id=event_id, n=limit, owner=owner))]


@operation(single=True, repeatable=True)
def listen(server: str, seconds: float) -> Steps[None]:
    """Ask to be woken by new events for the next `seconds` seconds."""
    yield Call("listen_for_events", id=server, ttl=seconds)


@operation(single=True, repeatable=True)
def stop_listening(server: str) -> Steps[None]:
    """Be woken no more."""
    yield Call("stop_listening_for_events", id=server)
