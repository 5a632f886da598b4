"""What happened to jobs that have an owner, for clients that watch.

Triggers write an event in the transaction of its change. On PostgreSQL events do not become visible in the order of
their ids: a transaction that took a small id may commit after one that took a larger id. `news` therefore
returns which transactions are still running, so that its reader knows when a missing id will never come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record


@dataclass(frozen=True, slots=True)
class Event:
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


class Gap(NamedTuple):
    """Ids from `first` to `last` without an event. Every transaction that could bring one has a number below `until`,
    which is None where the database could not give a number."""

    first: int
    last: int
    until: int | None


class News(NamedTuple):
    """Events that were not there before, and which transactions had begun and not ended when they were read."""

    events: list[Event]
    running_from: int  # every transaction before this number has ended
    running_to: int | None  # above the number of every transaction that took an id below one of the events
    deleted: int = 0  # the largest id of an event that was deleted


@operation(read=True)
def bounds() -> Steps[tuple[int, int]]:
    """The largest id of an event that was deleted, and the id of the newest event; 0 where there is none."""
    (row,) = yield Call("event_bounds")
    return row.deleted or 0, row.newest or 0


@operation(read=True)
def begin() -> Steps[tuple[int, int, int | None]]:
    """Where a reader begins that wants the events from now on: the bounds, and a number above that of every transaction
    that took an id up to the newest. On PostgreSQL only."""
    (row,) = yield Call("events_begin")
    return row.deleted or 0, row.newest or 0, row.running_to


@operation(read=True)
def writers_from(running_to: int) -> Steps[int]:
    """A number up to `running_to`: no transaction below it runs that may have written events. On PostgreSQL only."""
    (row,) = yield Call("event_writers", running_to=running_to)
    return int(row.oldest)


@operation(read=True)
def gaps(newest: int, running_to: int | None) -> Steps[list[Gap]]:
    """The ids up to `newest` that have no event, in order. On PostgreSQL only. It reads all ids."""
    return [Gap(row.first, row.last, running_to) for row in (yield Call("event_gaps", id=newest))]


@operation(read=True)
def news(newest: int, gaps: Sequence[Gap], limit: int) -> Steps[News]:
    """At most `limit` events after the id `newest`, and at most `limit` that are in the gaps by now; in one snapshot
    with the numbers of the transactions that run."""
    rows = yield Call(
        "new_events",
        id=newest,
        n=limit,
        gaps=[(str(gap.first), str(gap.last)) for gap in gaps],
        numbered=any(gap.until is None for gap in gaps),
    )
    found, now = [record(Event, row) for row in rows if row.id is not None], rows[0]
    return News(found, now.running_from, now.running_to, now.deleted or 0)


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
    yield Call("stop_listening_for_events", id=server)
