"""Unique keys: the second enqueue of the same work gets the first one's job.

`until_done`    held until the job has its final state
`while_queued`  held until its first claim, and never taken again: a retry cannot meet a twin
`forever`       held as long as the job is queued, running, retryable or succeeded, also after it was pruned
`window`        held for a time since it was taken, whatever becomes of the job

The scope of a key is the task and the owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.core.errors import StoreError
from rowlock.store.engines.operation import Call, Steps

TRIES = 5
SEPARATOR = "\x1f"  # in no name


def scope_of(task: str, owner: str | None) -> str:
    """Where a key is unique. With a separator in any case: the scope `id` is that of ids that clients chose."""
    return f"{task}{SEPARATOR}{owner or ''}"


def take_keys(scope: str, wanted: Sequence[tuple[str, str]], mode: str, window: float | None) -> Steps[dict[str, str]]:
    """Take (key, job id) pairs with different keys; answers the job that now holds each key, ours or an older one."""
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
        rest = [(key, job_id) for key, job_id in rest if key not in holders]  # let go meanwhile: take it after all
        if not rest:
            return holders
        if over:
            yield Call("clear_keys", scope=scope, wanted=over)
    raise StoreError(f"key {rest[0][0]!r} is taken and let go all the time; try again")


def let_go(ids: Sequence[str]) -> Steps[None]:
    """Jobs that are claimed for the first time give up the keys that hold while they are queued."""
    if ids:
        yield Call("let_go", gone=[(job_id,) for job_id in ids])


def done(ids: Sequence[str]) -> Steps[None]:
    """Jobs with keys have succeeded."""
    if ids:
        yield Call("keys_done", gone=[(job_id,) for job_id in ids])


def given_up(ids: Sequence[str]) -> Steps[None]:
    """Jobs with keys have ended dead or cancelled."""
    if ids:
        yield Call("keys_given_up", gone=[(job_id,) for job_id in ids])
