"""What goes out to Redis: requests for jobs, and word that a job was cancelled.

A row is written in the transaction that makes it true. A request's row stays until the job's worker has answered, so
that a request that Redis has lost can be sent again.
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
    """A row whose time has come to be sent by anybody."""

    id: int
    kind: str  # request or cancel
    job_id: str
    token: str | None


class Quiet(NamedTuple):
    """A request that was sent and not answered."""

    id: int
    job_id: str
    token: str
    entry: str
    age: float
    waits: bool  # False: its job has ended or has another attempt, and the row is left over


@operation(single=True, hot=True)
def publish(
    token: str, ranges: Sequence[Range], n: int, patience: float, created: dict[str, datetime]
) -> Steps[list[Claimed]]:
    """Claim up to `n` ready plain jobs for the stream, and write their requests. `created` gets the moment
    at which each was created, where the engine returns it in the same statement; else `still_wanted` does."""
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
    """Claim up to `n` ready jobs of these sources, and plain ones in their turn, and write their requests."""
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
    """These claimed jobs as they are to be published, without those that have been cancelled since."""
    rows = yield Call("outbox_wanted", asked=[(job.id, job.token) for job in claimed])
    created = {row.id: moment(row.created_at) for row in rows}
    return [Outgoing(job, created[job.id]) for job in claimed if job.id in created]


@operation(read=True)
def read(asked: Set[tuple[str, str]]) -> Steps[list[Outgoing]]:
    """The jobs (id, token) that are still to be published, in the order of their claim."""
    rows = yield Call("remote_jobs", asked=[(job_id,) for job_id in sorted({job_id for job_id, _ in asked})])
    claimed = [job for job in map(Claimed._make, rows) if (job.id, job.token) in asked]
    return (yield from still_wanted(sorted(claimed, key=lambda job: (job.priority, job.id))).start())


@operation()
def take(n: int, patience: float) -> Steps[list[Unsent]]:
    """Up to `n` rows that nobody has sent in time; for `patience` seconds they are the caller's."""
    rows = yield Call("outbox_take", n=n, patience=patience)
    return sorted(record(Unsent, row) for row in rows)


@operation(single=True, repeatable=True)
def mark_sent(sent: Sequence[tuple[str, str, str]]) -> Steps[None]:
    """These requests (job, token, entry) are in the stream."""
    yield Call("outbox_sent", sent=sent)


@operation(repeatable=True)
def remove(ids: Sequence[int]) -> Steps[None]:
    yield Call("outbox_remove", gone=[(str(row_id),) for row_id in ids])


@operation(read=True)
def overdue(seconds: float, n: int) -> Steps[int]:
    """How many messages have been waiting for more than `seconds`, up to `n`. While a bridge runs, none should."""
    return int((yield Call("outbox_overdue", ago=-seconds, n=n))[0].number)


@operation(read=True)
def unread() -> Steps[int]:
    """How many requests were published and not answered."""
    (row,) = yield Call("outbox_unread")
    return int(row.number)


@operation(read=True)
def quiet(after: int, n: int, seconds: float) -> Steps[list[Quiet]]:
    """Requests that were sent more than `seconds` ago and not answered, after a row's id."""
    return [record(Quiet, row) for row in (yield Call("outbox_quiet", id=after, n=n, ago=-seconds))]


@operation()
def give_up(job_id: str, keep: Keep) -> Steps[None]:
    """End the attempt of a job that a worker behind Redis has or can get, if there is one, as released, so that it is
    published anew."""
    rows = yield Call("remote_jobs", asked=[(job_id,)])
    for job in map(Claimed._make, rows):
        transition = decide(job, Released(0.0, "published again by an operator", "stopped"), 0.0)
        yield from settle_under_fence([Settlement(job, transition)], keep, by_holder=False)
        yield Call("outbox_heard", heard=[(job.id,)])
        yield from wake_idle()


@operation(read=True)
def cancel_asked(n: int) -> Steps[list[str]]:
    """Jobs behind Redis whose cancel was asked for by somebody who left it to their worker."""
    return [row.id for row in (yield Call("remote_cancels", n=n))]


@operation(repeatable=True)
def send_again(ids: Sequence[int]) -> Steps[None]:
    yield Call("outbox_again", again=[(str(row_id),) for row_id in ids])
