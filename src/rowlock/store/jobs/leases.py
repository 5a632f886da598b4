"""A lease between its claim and its settlement: beat, progress, cancel flag, and reclaim when it ran out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rowlock.core.errors import StoreError
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Lost
from rowlock.core.policy import decide
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.jobs.settle import Keep, settle_under_fence


class ToSweep(NamedTuple):
    """What a sweep would find, and when that was."""

    lapsed: bool  # there are leases that ran out
    overdue: bool  # there are waiting jobs that are past their latest start
    batched: bool  # there are open batches
    clock: float  # of the database itself, in seconds since 1970


@operation(single=True, repeatable=True)
def beat(leases: Sequence[tuple[str, str]], lease: float) -> Steps[set[str]]:
    """Renew these (id, token) leases; returns the ids that were. Locked rows are passed over."""
    return {row.id for row in (yield Call("beat", mine=leases, lease=lease))}


@operation(single=True, repeatable=True)
def beat_waiting(job_id: str, token: str, lease: float) -> Steps[bool]:
    """Renew one lease; waits if another transaction has locked its row."""
    return bool((yield Call("beat_waiting", id=job_id, token=token, lease=lease)))


@operation(read=True)
def held(leases: Sequence[tuple[str, str]]) -> Steps[dict[str, bool]]:
    """The leases that still hold, by job id, and whether their cancel was asked for."""
    rows = yield Call("held", mine=leases)
    return {row.id: bool(row.cancel_requested) for row in rows}


@operation(single=True, repeatable=True)
def progress(told: Sequence[tuple[str, str, int | None, str | None, str | None]]) -> Steps[set[str]]:
    """Store (id, token, progress, phase, message); returns the ids whose lease still holds."""
    rows = yield Call("progress", told=told)
    return {row.id for row in rows}


@operation(single=True, repeatable=True)
def set_result_file(job_id: str, token: str, uri: str, checksum: str) -> Steps[bool]:
    """Name the file that this attempt has made, under its lease; it becomes the job's result when the attempt is
    settled as a success. False when the lease is lost."""
    return bool((yield Call("set_result_file", id=job_id, token=token, uri=uri, checksum=checksum)))


@operation()
def reclaim(
    draws: Sequence[float], guard: float, keep: Keep, only: Collection[str] | None = None
) -> Steps[list[Settlement]]:
    """End leases that ran out, one for each jitter value in `draws` at most; with `only`, those of these jobs. The
    server must have been up for `guard` seconds, so that an outage does not look like the death of every worker."""
    rows = yield Call("expired", n=len(draws), guard=guard)
    lost = [Claimed._make(row) for row in rows if only is None or row[0] in only]
    pairs = zip(lost, draws, strict=False)  # draws for which no lease ran out are left over
    settlements = [Settlement(job, decide(job, Lost(worker=job.worker), draw)) for job, draw in pairs]
    if settlements:
        answers = yield from settle_under_fence(settlements, keep, by_holder=False)
        if left := [job_id for job_id, answer in answers.items() if answer != "applied"]:
            # Nobody else can have had it in between: its row is locked. Without an error it would be tried for ever.
            raise StoreError(f"the lease of job {left[0]} cannot be ended: its row has no lease_token")
    return settlements


@operation(read=True)
def settled_by(job_id: str, token: str) -> Steps[bool]:
    """Whether this very lease has settled the job: tells what became of a COMMIT whose reply was lost."""
    rows = yield Call("settled_tokens", asked=[(job_id,)])
    return any(row.settled_token == token for row in rows)


@operation(read=True)
def to_sweep() -> Steps[ToSweep]:
    (found,) = yield Call("to_sweep")
    return ToSweep(bool(found.expired), bool(found.overdue), bool(found.batched), float(found.clock))
