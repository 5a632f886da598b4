"""The outbox: messages to Redis, which are requests for jobs and notices of cancelled jobs.

A row is written in the same transaction as the claim or cancel that it announces. A request's row stays until the job's
worker answers, so that the request can be sent again if Redis loses it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime
from typing import NamedTuple

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import Range, Sighting
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Released
from rowlock.core.policy import decide
from rowlock.core.redis_request import UNREAD, WHILE_UNREAD
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.records import moment, record
from rowlock.store.engine.wake import wake_idle
from rowlock.store.jobs import claim
from rowlock.store.jobs.settle import Keep, settle_under_fence
from rowlock.store.sources import claim as sourced_claim


class Outgoing(NamedTuple):
    job: Claimed
    created_at: datetime


class Unsent(NamedTuple):
    """An overdue row, which any bridge may send."""

    id: int
    kind: str  # request or cancel
    job_id: str
    token: str | None


class Quiet(NamedTuple):
    """A request that was sent but not answered."""

    id: int
    job_id: str
    token: str
    entry: str
    age: float
    waits: bool  # False: the row is obsolete, because its job has ended or has a newer attempt


@operation(single=True, hot=True)
def publish(
    token: str, ranges: Sequence[Range], n: int, patience: float, created: dict[str, datetime]
) -> Steps[list[Claimed]]:
    """Claim up to `n` ready plain jobs for the stream, and add their requests. If the engine returns creation times in
    the same statement, adds them to `created`; otherwise `still_wanted` reads them."""
    if n > 0 and ranges and (yield from dialect()).moves_in_one_statement:
        given = {"worker": UNREAD, "token": token, "lane": ranges, "n": n, "lease": WHILE_UNREAD, "patience": patience}
        rows = yield Call("publish", **given)
        created |= {row[0]: moment(row[-1]) for row in rows}
        return claim.in_claim_order([row[:-1] for row in rows], token, UNREAD)
    claimed = yield from claim.claim(UNREAD, token, ranges, n, WHILE_UNREAD).start()
    yield from _add(claimed, patience)
    return claimed


@operation()
def publish_sourced(
    token: str, sightings: Sequence[Sighting], order: Sequence[str], plain: Sequence[Range], n: int, patience: float
) -> Steps[ClaimResult]:
    """Claim up to `n` ready jobs of these sources, with plain jobs in their turn, and add their requests."""
    result = yield from sourced_claim.claim_sourced(UNREAD, token, sightings, order, plain, n, WHILE_UNREAD).start()
    yield from _add(result.jobs, patience)
    return result


def _add(claimed: Sequence[Claimed], patience: float) -> Steps[None]:
    if claimed:
        yield Call("outbox_add", picked=[(job.id, job.token) for job in claimed], patience=patience)
        if begun := sorted({job.batch_id for job in claimed if job.batch_id is not None}):
            yield Call("start_batches", asked=[(batch_id,) for batch_id in begun])


@operation(read=True)
def still_wanted(claimed: Sequence[Claimed]) -> Steps[list[Outgoing]]:
    """The claimed jobs to publish, without those that have been cancelled since the claim."""
    rows = yield Call("outbox_wanted", asked=[(job.id, job.token) for job in claimed])
    created = {row.id: moment(row.created_at) for row in rows}
    return [Outgoing(job, created[job.id]) for job in claimed if job.id in created]


@operation(read=True)
def read(asked: Set[tuple[str, str]]) -> Steps[list[Outgoing]]:
    """Those of the jobs (id, token) that should still be published, in claim order."""
    rows = yield Call("remote_jobs", asked=[(job_id,) for job_id in sorted({job_id for job_id, _ in asked})])
    claimed = [job for job in map(Claimed._make, rows) if (job.id, job.token) in asked]
    return (yield from still_wanted(sorted(claimed, key=lambda job: (job.priority, job.id))).start())


@operation()
def take(n: int, patience: float) -> Steps[list[Unsent]]:
    """Take up to `n` rows that were not sent in time; for `patience` seconds, only the caller may send them."""
    rows = yield Call("outbox_take", n=n, patience=patience)
    return sorted(record(Unsent, row) for row in rows)


@operation(single=True, repeatable=True)
def mark_sent(sent: Sequence[tuple[str, str, str]]) -> Steps[None]:
    """Note that these requests (job, token, entry) are in the stream."""
    yield Call("outbox_sent", sent=sent)


@operation(repeatable=True)
def remove(ids: Sequence[int]) -> Steps[None]:
    yield Call("outbox_remove", gone=[(str(row_id),) for row_id in ids])


@operation(read=True)
def overdue(seconds: float, n: int) -> Steps[int]:
    """How many messages are overdue by more than `seconds`, up to `n`. While a bridge runs, there should be none."""
    return int((yield Call("outbox_overdue", ago=-seconds, n=n))[0].number)


@operation(read=True)
def unread() -> Steps[int]:
    """How many published requests are unanswered."""
    (row,) = yield Call("outbox_unread")
    return int(row.number)


@operation(read=True)
def quiet(after: int, n: int, seconds: float) -> Steps[list[Quiet]]:
    """Up to `n` unanswered requests that were sent more than `seconds` ago, after the row with the id `after`."""
    return [record(Quiet, row) for row in (yield Call("outbox_quiet", id=after, n=n, ago=-seconds))]


@operation()
def give_up(job_id: str, keep: Keep) -> Steps[None]:
    """Release the attempt of a job that waits in the stream or runs behind Redis, if it has one, so that the job is
    published again."""
    rows = yield Call("remote_jobs", asked=[(job_id,)])
    for job in map(Claimed._make, rows):
        transition = decide(job, Released(0.0, "published again by an operator", "stopped"), 0.0)
        yield from settle_under_fence([Settlement(job, transition)], keep, by_holder=False)
        yield Call("outbox_heard", heard=[(job.id,)])
        yield from wake_idle()


@operation(read=True)
def cancel_asked(n: int) -> Steps[list[str]]:
    """Jobs behind Redis for which only the flag requests a cancel, which their workers don't see."""
    return [row.id for row in (yield Call("remote_cancels", n=n))]


@operation(repeatable=True)
def send_again(ids: Sequence[int]) -> Steps[None]:
    yield Call("outbox_again", again=[(str(row_id),) for row_id in ids])
