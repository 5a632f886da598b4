"""Claim jobs without a source, claim one job by its id, and make due jobs claimable.

Jobs that have a source are claimed in store/sources/claim.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from rowlock.core.claiming.ranges import NO_ID as NO_ID
from rowlock.core.claiming.ranges import QueueTask
from rowlock.core.claiming.ranges import Range as Range
from rowlock.core.errors import RowlockError
from rowlock.core.job import Claimed
from rowlock.core.states import State
from rowlock.store.engine import clock
from rowlock.store.engine.operation import Call, Row, Steps, dialect, operation
from rowlock.store.jobs import keys

_PRIORITY_AND_ID = attrgetter("priority", "id")


@operation(single=True, hot=True, size=lambda worker, token, ranges, n, lease: n)
def claim(worker: str, token: str, ranges: Sequence[Range], n: int, lease: float) -> Steps[list[Claimed]]:
    """Claim up to `n` ready jobs under `token`, best priority first, oldest first within a priority. If fewer than `n`
    come back, more may still be ready, unless every range had fewer than its `most`."""
    if n <= 0 or not ranges:
        return []
    if (yield from dialect()).moves_in_one_statement:
        rows = yield Call("claim", worker=worker, token=token, lane=ranges, n=n, lease=lease)
        return in_claim_order(rows, token, worker)
    whole = all(one.most >= n for one in ranges)
    front = yield Call("front" if whole else "front_merged", lane=ranges, n=n)
    claimed = yield from claim_front(front, worker=worker, token=token, lease=lease)
    yield from release_queued_keys(claimed)
    return claimed


def claim_front(front: Sequence[Row], *, worker: str, token: str, **rest: Any) -> Steps[list[Claimed]]:
    """SQLite: claim the rows that `front` has read, in their order. Each row is the part `claiming` and then the rowid.
    `rest` holds the statement's other parameters."""
    if not front:
        return []
    yield Call("claim", worker=worker, token=token, front=[row[-1] for row in front], **rest)
    holder = (token, worker)
    return [Claimed._make(row[:-1] + holder) for row in front]


def release_queued_keys(claimed: Sequence[Claimed]) -> Steps[None]:
    """Release the `while_queued` keys of these jobs, which are no longer queued."""
    yield from keys.release([job.id for job in claimed if job.unique_mode == "while_queued"], State.RUNNING)


@operation()
def claim_one(job_id: str, worker: str, token: str, lease: float) -> Steps[Claimed | None]:
    """Claim the job with this id. None if it can't be claimed now."""
    yield Call("promote_these", asked=[(job_id,)])
    found = yield Call("claimable", job_id=job_id)
    if not found:
        return None
    values = {"worker": worker, "token": token, "lease": lease, "epoch": 0, "at": found[0].at}
    rows = yield from claim_picked([(job_id,)], **values)
    (claimed,) = in_claim_order(rows, token, worker)
    yield from release_queued_keys([claimed])
    if claimed.batch_id is not None:
        yield Call("start_batches", asked=[(claimed.batch_id,)])
    return claimed


def claim_picked(picked: Sequence[tuple[str]], **values: Any) -> Steps[list[Row]]:
    """Claim these jobs, whose rows the caller has locked. Returns the part `claimed` of each. `values` holds the
    statement's other parameters: worker, token, lease, epoch, at."""
    rows = yield Call("claim_picked", picked=picked, **values)
    if not (yield from dialect()).moves_in_one_statement:
        rows = yield Call("read_picked", picked=picked)
    return rows


@operation(read=True)
def adopt(worker: str, token: str) -> Steps[list[Claimed]]:
    """Return the jobs of a claim that was committed but whose reply never reached the worker."""
    rows = yield Call("adopt", worker=worker, token=token)
    return in_claim_order(rows, token, worker)


def in_claim_order(rows: Sequence[Row], token: str, worker: str) -> list[Claimed]:
    """Turn rows of the part `claimed` into records, ordered by priority and age."""
    return sorted([Claimed._make((*row, token, worker)) for row in rows], key=_PRIORITY_AND_ID)


@operation(single=True, repeatable=True)
def promote(n: int, only: Sequence[str] | None = None) -> Steps[tuple[int, float | None]]:
    """Make up to `n` due jobs claimable. Returns how many, and the seconds until the next job is due (None: no job is
    waiting). With `only`, promotes the due ones of these jobs and returns (len(only), 0)."""
    if only is not None:
        yield Call("promote_these", asked=[(job_id,) for job_id in only])
        return len(only), 0.0
    answer = yield Call("promote", n=n)
    if not (yield from dialect()).moves_in_one_statement:
        answer = yield Call("promoted")
    (found,) = answer
    if found.promoted >= n:
        return int(found.promoted), 0.0  # the batch was full: there may be more
    return int(found.promoted), None if found.seconds is None else float(found.seconds)


@operation(read=True, single=True)
def peek(served: Sequence[QueueTask]) -> Steps[tuple[bool, float | None]]:
    """Whether a job of these tasks and queues is ready (its source may still refuse it), and the seconds until the next
    job is due: 0 or less if one is due already, None if no job is waiting."""
    (found,) = yield Call("peek", lane=served)
    return bool(found.ready), None if found.seconds is None else float(found.seconds)


@operation(read=True)
def ready_ids(lanes: Sequence[tuple[str, str]], n: int, after: str = NO_ID) -> Steps[list[str]]:
    """Ids of up to `n` ready jobs of these (queue, task) pairs, after the id `after`, with or without a source."""
    return [row.id for row in (yield Call("ready_ids", lane=lanes, n=n, id=after))]


class Undone(RowlockError):
    """Raised to roll back a trial that has worked, such as `try_claim`."""


@operation()
def try_claim(ids: Sequence[str]) -> Steps[None]:
    """Test whether these jobs can be claimed: claim them, then raise `Undone`, which rolls the claim back. Any other
    error means that one of them can't be claimed. Jobs that another transaction has locked are skipped."""
    picked = yield Call("lock_ready", picked=[(job_id,) for job_id in ids])
    if not picked:
        raise Undone
    at = yield from clock.now().start()
    rows = yield from claim_picked(
        [(row.id,) for row in picked], worker="nobody", token=NO_ID, lease=0.0, epoch=0, at=at
    )
    in_claim_order(rows, NO_ID, "nobody")
    raise Undone


@operation(read=True)
def work_left(ranges: Sequence[Range]) -> Steps[bool]:
    """Whether a job of these tasks and queues is running or due."""
    return bool((yield Call("work_left", lane=[(one.queue, one.task) for one in ranges])))
