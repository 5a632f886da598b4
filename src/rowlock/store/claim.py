"""Claiming jobs that have no source, one job by its id, and making due jobs claimable.

Jobs that have a source are claimed in sourced_claim.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from rowlock.core.errors import RowlockError
from rowlock.core.job import Claimed
from rowlock.core.lanes import NO_ID as NO_ID
from rowlock.core.lanes import Lane as Lane
from rowlock.store import keys
from rowlock.store.engines.operation import Call, Row, Steps, dialect, operation
from rowlock.store.times import moment

_PRIORITY_AND_ID = attrgetter("priority", "id")


@operation(single=True, hot=True, size=lambda worker, token, lanes, n, lease: n)
def claim(worker: str, token: str, lanes: Sequence[Lane], n: int, lease: float) -> Steps[list[Claimed]]:
    """Take up to `n` ready jobs under `token`, best priority first, oldest first within a priority. Fewer than `n`
    means that there are no more only if every lane gave less than its `take`."""
    if n <= 0 or not lanes:
        return []
    if (yield from dialect()).moves_in_one_statement:
        rows = yield Call("claim", worker=worker, token=token, lane=lanes, n=n, lease=lease)
        return in_claim_order(rows, token, worker)
    whole = all(lane.take >= n for lane in lanes)
    front = yield Call("front" if whole else "front_merged", lane=lanes, n=n)
    if not front:
        return []
    yield Call("claim", worker=worker, token=token, lease=lease, front=[row[-1] for row in front])
    claimed = in_claim_order([row[:-1] for row in front], token, worker)
    yield from keys.let_go([job.id for job in claimed if job.unique_mode == "while_queued"])
    return claimed


@operation()
def claim_one(job_id: str, worker: str, token: str, lease: float) -> Steps[Claimed | None]:
    """Take this very job, if it may be claimed now."""
    yield Call("promote_one", job_id=job_id)
    found = yield Call("claimable", job_id=job_id)
    if not found:
        return None
    under = {"worker": worker, "token": token, "lease": lease, "epoch": 0, "at": found[0].at}
    rows = yield from take_picked([(job_id,)], **under)
    (claimed,) = in_claim_order(rows, token, worker)
    yield from keys.let_go([claimed.id] if claimed.unique_mode == "while_queued" else [])
    if claimed.batch_id is not None:
        yield Call("start_batches", asked=[(claimed.batch_id,)])
    return claimed


def take_picked(picked: Sequence[tuple[str]], **under: Any) -> Steps[list[Row]]:
    """Claim these jobs, which nobody else can claim meanwhile; answers the columns `{claimed}` of each."""
    rows = yield Call("take", picked=picked, **under)
    if not (yield from dialect()).moves_in_one_statement:
        rows = yield Call("taken", picked=picked)
    return rows


@operation(read=True)
def adopt(worker: str, token: str) -> Steps[list[Claimed]]:
    """What a claim took whose reply was lost."""
    rows = yield Call("adopt", worker=worker, token=token)
    return in_claim_order(rows, token, worker)


def in_claim_order(rows: Sequence[Row], token: str, worker: str) -> list[Claimed]:
    """Rows of the columns `{claimed}` as records."""
    return sorted([Claimed._make((*row, token, worker)) for row in rows], key=_PRIORITY_AND_ID)


@operation(single=True, repeatable=True)
def promote(n: int) -> Steps[tuple[int, float | None]]:
    """Make up to `n` due jobs claimable; answers how many, and the seconds until the next one is due."""
    answer = yield Call("promote", n=n)
    if not (yield from dialect()).moves_in_one_statement:
        answer = yield Call("promoted")
    (found,) = answer
    if found.promoted >= n:
        return int(found.promoted), 0.0  # the batch was full: there may be more
    return int(found.promoted), None if found.seconds is None else float(found.seconds)


@operation(read=True)
def due_ids(n: int) -> Steps[list[str]]:
    """The jobs that `promote` takes."""
    return [row.id for row in (yield Call("due_ids", n=n))]


@operation(single=True, repeatable=True)
def promote_one(job_id: str) -> Steps[tuple[int, float | None]]:
    """Make one job claimable if it is due; answers as `promote` does."""
    yield Call("promote_one", job_id=job_id)
    return 1, 0.0


@operation(read=True)
def ready_ids(lanes: Sequence[tuple[str, str]], n: int, after: str = NO_ID) -> Steps[list[str]]:
    """Up to `n` claimable jobs of these (queue, task) after an id, with a source or without one."""
    return [row.id for row in (yield Call("ready_ids", lane=lanes, n=n, id=after))]


class Undone(RowlockError):
    """What was tried works, and was rolled back."""


@operation()
def try_claim(ids: Sequence[str]) -> Steps[None]:
    """Whether these jobs can be claimed at all: claims them and raises `Undone`; another error when one of them cannot.
    Those that somebody else has locked are passed over."""
    picked = yield Call("lock_ready", picked=[(job_id,) for job_id in ids])
    if not picked:
        raise Undone
    under = {"worker": "nobody", "token": NO_ID, "lease": 0.0, "epoch": 0}
    (clock,) = yield Call("clock")
    rows = yield from take_picked([(row.id,) for row in picked], at=moment(clock.now), **under)
    in_claim_order(rows, NO_ID, "nobody")
    raise Undone


@operation(read=True)
def work_left(lanes: Sequence[Lane]) -> Steps[bool]:
    """Whether anything in these lanes runs or is due."""
    return bool((yield Call("work_left", lane=[lane[:2] for lane in lanes])))
