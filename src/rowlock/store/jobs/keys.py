"""Idempotency keys: a second enqueue with a key that is held doesn't create a job and returns the first one.

`until_done`    held until the job has a final state
`while_queued`  held until the job is first claimed; a retry doesn't take it again: another job may hold it by then
`forever`       held until the job ends, and forever if it succeeds, even after the job is pruned
`window`        held for a fixed time from the enqueue, whatever happens to the job

A key belongs to one task and one owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.core.errors import StoreError
from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Steps

TRIES = 5  # to take a key that other transactions keep taking and releasing
SEPARATOR = "\x1f"  # names can't contain it


def scope_of(task: str, owner: str | None) -> str:
    """The scope in which a key is unique. Its separator keeps it apart from `id`, the scope of ids given as job_id."""
    return f"{task}{SEPARATOR}{owner or ''}"


def take_keys(scope: str, wanted: Sequence[tuple[str, str]], mode: str, window: float | None) -> Steps[dict[str, str]]:
    """Take keys for jobs, given as (key, job id) with distinct keys. Returns the job that now holds each key."""
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
        rest = [(key, job_id) for key, job_id in rest if key not in holders]  # over, or released since: try again
        if not rest:
            return holders
        if over:
            yield Call("clear_keys", scope=scope, wanted=over)
    raise StoreError(f"other transactions took and released key {rest[0][0]!r} {TRIES} times in a row; try again")


def release(ids: Sequence[str], state: State) -> Steps[None]:
    """Release the keys that these jobs no longer hold now that they are in this state (running or a final one)."""
    if ids:
        yield Call("release_keys", gone=[(job_id,) for job_id in ids], state=str(state))
