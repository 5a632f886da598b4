"""An operator's retry: finished jobs run again."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.core.states import State
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.wake import wake_idle
from rowlock.store.jobs import keys


@operation()
def retry(ids: Sequence[str], tries: int) -> Steps[set[str]]:
    """Put dead and cancelled jobs back in the queue with `tries` more tries; returns their ids. A job stays as it is if
    another job holds its key by now."""
    rows = yield Call("lock_finished", asked=[(job_id,) for job_id in sorted(set(ids))])
    revived = []
    for row in rows:
        if (yield from _retake_key(row)):
            revived.append(row)
    if revived:
        asked = [(row.id,) for row in revived]
        yield Call("revive", asked=asked, tries=tries)
        yield Call("delete_finished", asked=asked)
        members = [row for row in revived if row.batch_id is not None]
        yield from batches.reopen([(row.id, row.batch_id, State(row.state), row.error_code) for row in members])
        yield from wake_idle()
    return {row.id for row in revived}


def _retake_key(finished: Row) -> Steps[bool]:
    """Take a finished job's key for it again. False if another job holds the key; True if there is nothing to take."""
    if finished.unique_mode not in ("until_done", "forever") or finished.unique_key is None:
        return True
    scope, key = keys.scope_of(finished.task, finished.owner), finished.unique_key
    holders = yield from keys.take_keys(scope, [(key, finished.id)], finished.unique_mode, None)
    return bool(holders[key] == finished.id)
