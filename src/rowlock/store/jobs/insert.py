"""The insert of new jobs, as a part of any operation: an enqueue, a follow-up, the end of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowlock.core.job import NewJob
from rowlock.store.engine.operation import Call, Steps
from rowlock.store.engine.wake import wake_idle_after_insert


class NewRow(NamedTuple):
    """The part of a new job that is not in `NewJob`: what differs between the jobs of one enqueue. An empty `id` means
    that the enqueue makes one."""

    id: str
    args: str
    key: str | None
    source: str | None


def add(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options, and wake workers."""
    if len(rows) == 1:
        yield Call("enqueue_one", id=rows[0][0], args=rows[0][1], **new.parameters)
    else:
        yield Call("enqueue", added=rows, **new.parameters)
    yield from wake_idle_after_insert()


def add_rows(rows: Sequence[NewRow], new: NewJob) -> Steps[None]:
    """Insert jobs that differ in their key, which is taken already, or in their source."""
    if rows:
        yield Call("enqueue_rows", added=rows, **new.parameters)
        yield from wake_idle_after_insert()
