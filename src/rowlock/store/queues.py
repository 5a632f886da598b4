"""Pause and resume queues. While the row of a queue in `queues` has a `paused_at`, no claim takes its jobs.

The claims check this themselves: the part `not_paused` and the statement `claimable` in store/jobs/claim.sql, the part
`turns` in store/sources/claim.sql, and store/schema/postgres/functions/claim.sql for workers that call SQL functions.
"""

from __future__ import annotations

from datetime import datetime

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import moment
from rowlock.store.engine.wake import wake_idle


@operation(single=True, repeatable=True)
def pause(name: str) -> Steps[None]:
    """Stop claims from a queue. Running jobs go on."""
    yield Call("pause_queue", name=name)


@operation(repeatable=True)
def resume(name: str) -> Steps[bool]:
    """Allow claims again. False if the queue was not paused."""
    resumed = yield Call("resume_queue", name=name)
    yield from wake_idle()
    return bool(resumed)


@operation(read=True)
def paused() -> Steps[dict[str, datetime]]:
    return {row.name: moment(row.paused_at) for row in (yield Call("paused_queues"))}
