"""Leases between claim and settlement: renew them, store progress, read cancel requests, reclaim expired ones."""

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
    """What a sweep would find now."""

    lapsed: bool  # there are expired leases
    overdue: bool  # there are waiting jobs past their `expires_at`
    batched: bool  # there are open batches
    clock: float  # the database's own clock, in seconds since 1970


@operation(single=True, repeatable=True)
def beat(leases: Sequence[tuple[str, str]], lease: float) -> Steps[set[str]]:
    """Renew these (id, token) leases, skipping locked rows. Returns the ids of the renewed ones."""
    return {row.id for row in (yield Call("beat", mine=leases, lease=lease))}


@operation(single=True, repeatable=True)
def beat_waiting(job_id: str, token: str, lease: float) -> Steps[bool]:
    """Renew one lease, waiting if another transaction has locked its row."""
    return bool((yield Call("beat_waiting", id=job_id, token=token, lease=lease)))


@operation(read=True)
def held(leases: Sequence[tuple[str, str]]) -> Steps[dict[str, bool]]:
    """The ids of the jobs whose leases still hold, each with True if its cancel was requested."""
    rows = yield Call("held", mine=leases)
    return {row.id: bool(row.cancel_requested) for row in rows}


@operation(single=True, repeatable=True)
def progress(reported: Sequence[tuple[str, str, int | None, str | None, str | None]]) -> Steps[set[str]]:
    """Store progress reports (id, token, progress, phase, message). Returns the ids whose lease still holds."""
    rows = yield Call("progress", reported=reported)
    return {row.id for row in rows}


@operation(single=True, repeatable=True)
def set_result_file(job_id: str, token: str, uri: str, checksum: str) -> Steps[bool]:
    """Store the result file of this attempt under its lease; it becomes the job's result if the attempt succeeds. False
    if the lease was lost."""
    return bool((yield Call("set_result_file", id=job_id, token=token, uri=uri, checksum=checksum)))


@operation()
def reclaim(
    draws: Sequence[float], guard: float, keep: Keep, only: Collection[str] | None = None
) -> Steps[list[Settlement]]:
    """End expired leases, at most one for each jitter value in `draws`; with `only`, just those of these jobs. Nothing
    expires until the server has been up for `guard` seconds: an outage must not look like the death of every worker."""
    rows = yield Call("expired", n=len(draws), guard=guard)
    lost = [Claimed._make(row) for row in rows if only is None or row[0] in only]
    pairs = zip(lost, draws, strict=False)  # usually there are more draws than expired leases
    settlements = [Settlement(job, decide(job, Lost(worker=job.worker), draw)) for job, draw in pairs]
    if settlements:
        answers = yield from settle_under_fence(settlements, keep, by_holder=False)
        if left := [job_id for job_id, answer in answers.items() if answer != "applied"]:
            # The row is locked, so nobody else can have settled it. Without an error, every sweep would try it again.
            raise StoreError(f"the lease of job {left[0]} cannot be ended: its row has no lease_token")
    return settlements


@operation(read=True)
def settled_by(job_id: str, token: str) -> Steps[bool]:
    """Whether this very lease has settled the job: after a COMMIT whose reply was lost, this shows if it happened."""
    rows = yield Call("settled_tokens", asked=[(job_id,)])
    return any(row.settled_token == token for row in rows)


@operation(read=True)
def to_sweep() -> Steps[ToSweep]:
    (found,) = yield Call("to_sweep")
    return ToSweep(bool(found.expired), bool(found.overdue), bool(found.batched), float(found.clock))
