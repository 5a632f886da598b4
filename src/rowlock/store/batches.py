"""Batches of jobs: their counters, their end, and who may add jobs.

The counters `total`, `processed` (finished, in whatever state), `failed` (dead or expired), `cancelled` and `expired`
change in the transactions that change the jobs. They are split over several rows (shards), so that settles of one large
batch don't wait for one row's lock. Succeeded = processed - failed - cancelled; dead = failed - expired.

A batch ends when it is sealed and processed = total. A worker checks this after it has committed outcomes; the sweeper
finds batches whose worker died before the check. The batch's state is the worst final state of its jobs.
Lock order: jobs, then batches.
"""

from __future__ import annotations

import logging
import operator
import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from rowlock.core.errors import BatchNotFound, NotAllowed, StorageFull, StoreUnavailable
from rowlock.core.states import State
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import record
from rowlock.store.engine.store import Store
from rowlock.store.jobs.enqueue import add
from rowlock.store.jobs.follow_ups import on_end
from rowlock.store.upkeep import bad_rows

log = logging.getLogger("rowlock.store")

SHARDS = 16  # counter rows of a batch that settles use; as many more count the added jobs
OVER = frozenset({"succeeded", "failed", "cancelled"})
EXPIRED = "EXPIRED"  # the error code of jobs that were cancelled because they did not start in time


@dataclass(frozen=True, slots=True)
class BatchRow:
    id: str
    name: str
    owner: str | None
    state: str  # queued, running, succeeded, failed, cancelled
    sealed: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    total: int
    processed: int  # finished, in whatever state
    failed: int  # dead or expired
    succeeded: int
    dead: int
    cancelled: int
    expired: int
    last_error: str | None
    parent_id: str | None = None  # the job whose handler made the batch
    end_job: str | None = None  # the job that was enqueued at its end (`on_end`)

    @property
    def over(self) -> bool:
        """Whether it has ended. It reopens if an operator retries one of its jobs."""
        return self.state in OVER


class EndedBatch(TypedDict):
    """The argument `batch` of an `on_end` task."""

    batch_id: str
    name: str
    owner: str | None
    state: str
    total: int
    processed: int
    failed: int
    succeeded: NotRequired[int]  # this field and the next three are missing in jobs of older versions
    dead: NotRequired[int]
    cancelled: NotRequired[int]
    expired: NotRequired[int]
    last_error: str | None


class Count(NamedTuple):
    """A change to a batch's counters."""

    batch_id: str
    total: int = 0
    processed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    last_error: str | None = None

    def undone(self) -> Count:
        """The opposite change."""
        return Count(self.batch_id, -self.total, -self.processed, -self.failed, -self.cancelled, -self.expired)


# --- parts of other operations


def join(batch_id: str, number: int, lease: tuple[str, str] | None) -> Steps[None]:
    """Count `number` new jobs in a batch. It accepts jobs from outside until it is sealed, and from its own jobs until
    it ends. If an attempt adds the jobs, `lease` is its lease."""
    inside = False
    if lease is not None:
        rows = yield Call("batch_of", job_id=lease[0], token=lease[1])
        inside = bool(rows) and rows[0].batch_id == batch_id
    rows = yield Call("batch_open", batch_id=batch_id)
    if not rows:
        raise BatchNotFound(batch_id)
    batch = rows[0]
    if batch.finished or batch.cancelled:
        how = "has ended" if batch.finished else "is cancelled"
        raise NotAllowed(f"batch {batch.name!r} ({batch_id}) {how}: no job was added")
    if batch.sealed and not inside:
        raise NotAllowed(
            f"batch {batch.name!r} ({batch_id}) is sealed: only its own jobs may add to it, by ctx.enqueue()"
        )
    # Use counter rows that no settle uses: the adding transaction may stay open for long, and settles must not wait.
    yield Call("count_batches", counted=[Count(batch_id, total=number)], shard=SHARDS + random.randrange(SHARDS))


def count(changes: Sequence[Count]) -> Steps[None]:
    """Change counters, in the order of ids, so that transactions can't deadlock."""
    sums: dict[str, Count] = {}
    for change in changes:
        so_far = sums.get(change.batch_id, Count(change.batch_id))
        total, processed, failed, cancelled, expired = map(operator.add, so_far[1:6], change[1:6])
        error = change.last_error or so_far.last_error
        sums[change.batch_id] = Count(change.batch_id, total, processed, failed, cancelled, expired, error)
    if sums:
        yield Call("count_batches", counted=[sums[key] for key in sorted(sums)], shard=os.getpid() % SHARDS)


def ended(batch_id: str, state: State, code: str | None = None, message: str | None = None) -> Count:
    """The change for a job that gets its final state. `code` tells if a cancelled job did not start in time."""
    expired = state is State.CANCELLED and code == EXPIRED
    failed = expired or state is State.DEAD
    cancelled = state is State.CANCELLED and not expired
    error = ": ".join(filter(None, (code, message))) or None if failed else None
    return Count(batch_id, 0, 1, int(failed), int(cancelled), int(expired), error)


def reopen(revived: Sequence[tuple[str, str, State, str | None]]) -> Steps[None]:
    """Take jobs that an operator has retried, given as (job, batch, old state, old error code), out of the counters,
    and reopen their batches. Locks all of these batches, because one that is just ending must notice the retry. Jobs
    whose batch was pruned leave it."""
    if not revived:
        return
    asked = [(batch_id,) for batch_id in sorted({batch_id for _, batch_id, *_ in revived})]
    there = {row.id for row in (yield Call("hold_batches", asked=asked))}
    orphans = [(job_id,) for job_id, batch_id, *_ in revived if batch_id not in there]
    if orphans:
        yield Call("leave_batch", gone=orphans)
    yield from count([ended(batch, state, code).undone() for _, batch, state, code in revived if batch in there])
    yield Call("reopen_batches", asked=asked)


# --- operations


@operation(single=True)
def make(batch_id: str, name: str, owner: str | None, on_end: str | None, parent_id: str | None = None) -> Steps[None]:
    """Insert a new batch. `parent_id` is the job whose handler makes it."""
    yield Call("make_batch", batch_id=batch_id, name=name, owner=owner, on_end=on_end, parent_id=parent_id)


@operation(single=True, repeatable=True, hot=True)
def start(ids: Sequence[str]) -> Steps[None]:
    """Mark these batches as running, because their first jobs were claimed."""
    yield Call("start_batches", asked=[(batch_id,) for batch_id in sorted(ids)])


@operation(repeatable=True)
def seal(batch_id: str) -> Steps[None]:
    """Accept no more jobs from outside. Waits for transactions that add jobs. After the commit, call `end`."""
    yield Call("hold_batches", asked=[(batch_id,)])
    if not (yield Call("seal_batch", batch_id=batch_id)):
        raise BatchNotFound(batch_id)


@operation(read=True, hot=True)
def complete(ids: Collection[str]) -> Steps[list[str]]:
    """Those of these batches that are complete: sealed, and processed = total."""
    return [row.id for row in (yield Call("complete_batches", asked=[(batch_id,) for batch_id in sorted(ids)]))]


async def end_after_commit(store: Store, ids: Collection[str]) -> None:
    """End those of these batches that are complete; call it after the commit of outcomes or a seal. Two concurrent
    transactions don't see each other's jobs, but whichever commits last sees both afterwards. If this fails, the next
    sweep ends the batches."""
    if not ids:
        return
    try:
        await end_each(store, ids)
    except (StoreUnavailable, StorageFull) as error:
        store.outage.failed("settler (batches wait for the next sweep to end)", error)
    except Exception as error:
        log.warning("batches wait for the next sweep to end: %s", error)


async def end_each(store: Store, ids: Collection[str]) -> None:
    """End those of these batches that are complete. A batch that can't be ended is set aside, and the others go on."""
    if found := await store.run(complete(ids)):
        await bad_rows.change_all(store, "end", found, end)


@operation(repeatable=True)
def end(ids: Collection[str]) -> Steps[list[str]]:
    """End those of these batches that are complete; returns their ids."""
    if not ids:
        return []
    asked = [(batch_id,) for batch_id in sorted(set(ids))]
    rows = yield Call("complete_batches", asked=asked)
    if not rows:
        return []
    # Check again under the lock, because a job may have been retried or added in between.
    rows = yield Call("hold_batches", asked=[(row.id,) for row in rows])
    rows = (yield Call("complete_batches", asked=[(row.id,) for row in rows])) if rows else []
    if not rows:
        return []
    complete = [(row.id,) for row in rows]
    first_time = {row.id for row in rows if row.first_time}  # only the first end of a batch makes its `on_end` job
    for batch_id, stored in (yield Call("end_batches", asked=complete)):
        if stored is not None and batch_id in first_time:
            batch = batch_of((yield Call("read_batch", batch_id=batch_id))[0])
            arguments = {"batch": _ended(batch)}
            for job_id, args, new in (yield from on_end(stored, batch_id, batch.owner, arguments, batch.parent_id)):
                yield from add([(job_id, args)], new)
                yield Call("set_end_job", batch_id=batch_id, job_id=job_id)
    return [batch_id for (batch_id,) in complete]


def _ended(batch: BatchRow) -> dict[str, Any]:
    """An EndedBatch."""
    return {name: batch.id if name == "batch_id" else getattr(batch, name) for name in EndedBatch.__annotations__}


@operation(repeatable=True)
def mark_cancelled(batch_id: str) -> Steps[bool]:
    """Cancel a batch: it accepts no more jobs. False if it is over or unknown. Waits for transactions that add jobs."""
    yield Call("hold_batches", asked=[(batch_id,)])
    return bool((yield Call("cancel_batch", batch_id=batch_id)))


@operation(read=True)
def left(batch_id: str, n: int) -> Steps[list[str]]:
    """Up to `n` jobs of a batch that are neither finished nor asked to stop."""
    return [row.id for row in (yield Call("batch_left", batch_id=batch_id, n=n))]


@operation(read=True)
def still_open(after: str, n: int) -> Steps[list[str]]:
    return [row.id for row in (yield Call("open_batches", batch_id=after, n=n))]


@operation(read=True)
def get(batch_id: str) -> Steps[BatchRow | None]:
    known = valid_id(batch_id)
    rows = (yield Call("read_batch", batch_id=known)) if known else []
    return batch_of(rows[0]) if rows else None


@operation(read=True)
def newest(n: int, before: str, owner: str | None = None, state: str | None = None) -> Steps[list[BatchRow]]:
    rows = yield Call("list_batches", n=n, batch_id=before, owner=owner, state=state)
    return [batch_of(row) for row in rows]


def batch_of(row: Row) -> BatchRow:
    succeeded, dead = row.processed - row.failed - row.cancelled, row.failed - row.expired
    return record(BatchRow, row, succeeded=int(succeeded), dead=int(dead))
