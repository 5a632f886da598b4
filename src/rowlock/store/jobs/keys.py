"""Idempotency keys: a second enqueue with a key that is held creates no job and returns the first one.

`until_done`    held until the job has a final state
`while_queued`  held until the job is first claimed; a retry does not take it again, as another job may hold it by then
`forever`       held while the job is queued, running or retryable, and for ever once it succeeded, even when pruned
`window`        held for a fixed time from the enqueue, whatever becomes of the job

A key belongs to one task and one owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.core.errors import StoreError
from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Steps

TRIES = 5  # to take a key that others take and release meanwhile
SEPARATOR = "\x1f"  # no name may contain it


def scope_of(task: str, owner: str | None) -> str:
    """The scope in which a key is unique. Its separator makes it differ from `id`, the scope of ids given as job_id."""
    return f"{task}{SEPARATOR}{owner or ''}"


def take_keys(scope: str, wanted: Sequence[tuple[str, str]], mode: str, window: float | None) -> Steps[dict[str, str]]:
    """Take keys for jobs, given as (key, job id) with distinct keys. Returns the job that holds each key now."""
    holders: dict[str, str] = {}
    rest = sorted(wanted)
    for _ in range(TRIES):
        rows = yield Call("take_keys", scope=scope, wanted=rest, mode=mode, window=window)
        taken = {row.key for row in rows}
        holders |= {key: job_id for key, job_id in rest if key in taken}
        rest = [(key, job_id) for key, job_id in rest if key not in taken]
        if not rest:
            return holders
        rows = yield Call("key_holders", scope=scope, wanted=[(key,) for key, _ in rest])
        over = [(row.key,) for row in rows if row.over]
        holders |= {row.key: row.job_id for row in rows if not row.over}
        rest = [(key, job_id) for key, job_id in rest if key not in holders]  # released meanwhile: try again
        if not rest:
            return holders
        if over:
            yield Call("clear_keys", scope=scope, wanted=over)
    raise StoreError(f"key {rest[0][0]!r} was taken and released by others {TRIES} times in a row; try again")


def release(ids: Sequence[str], state: State) -> Steps[None]:
    """Release the keys that jobs in this state, running or final, no longer hold."""
    if ids:
        yield Call("release_keys", gone=[(job_id,) for job_id in ids], state=str(state))
