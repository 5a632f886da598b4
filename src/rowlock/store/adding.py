"""The insert of new jobs, as a part of any operation: an enqueue, a follow-up, the end of a batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rowlock.core.job import NewJob
from rowlock.store.operation import Call, Ring, Steps


class NewRow(NamedTuple):
    """What each job of a bulk may have for itself."""

    id: str
    args: str
    key: str | None
    source: str | None


def add(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options, and wake workers."""
    if len(rows) == 1:
        yield Call("enqueue_one", id=rows[0][0], args=rows[0][1], **_options(new))
    else:
        yield Call("enqueue", added=rows, **_options(new))
    yield from ring()


def add_rows(rows: Sequence[NewRow], new: NewJob) -> Steps[None]:
    """Insert jobs that differ in their key, which is taken already, or in their source."""
    if rows:
        yield Call("enqueue_rows", added=rows, **_options(new))
        yield from ring()


def ring() -> Steps[None]:
    """Wake sleeping workers, where the statement before could not."""
    bells = yield Call("idle_bells")
    if bells:
        yield Ring(tuple(row[0] for row in bells))


def _options(new: NewJob) -> dict[str, Any]:
    return {
        "task": new.task,
        "queue": new.queue,
        "priority": new.priority,
        "owner": new.owner,
        "source": new.source,
        "tags": json.dumps(new.tags) if new.tags else None,
        "batch_id": new.batch_id,
        "unique_key": None,
        "unique_mode": new.unique,
        "max_attempts": new.max_attempts,
        "backoff": new.backoff,
        "timeout_seconds": new.timeout_seconds,
        "run_after": new.run_after,
        "delay": new.delay,
        "expires_at": new.expires_at,
        "on_success": new.on_success,
        "on_dead": new.on_dead,
        "on_lost": new.on_lost,
        "keep_seconds": new.keep_seconds,
    }
