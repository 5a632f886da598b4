"""Requests to create a job under an Idempotency-Key: the same request again is answered with the same job.

A request takes its key in a separate transaction, so that other servers see that it is being carried out, and names its
job in the transaction that creates the job. If its server dies in between, the key is free again after a while: the
`claim` keeps a request that wakes up too late from creating a second job.
"""

from __future__ import annotations

from typing import NamedTuple

from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.records import record


class Begun(NamedTuple):
    """A request that has taken its key."""

    owner: str  # empty: an operator
    key: str
    claim: str


class Earlier(NamedTuple):
    """A request that has the key already."""

    body_hash: str
    job_id: str | None  # None: it is being carried out


@operation(read=True)
def earlier(owner: str, key: str) -> Steps[Earlier | None]:
    """The request that has the key, if there is one. Asked before `begin`: on SQLite that would wait for the very
    transaction in which another server carries the request out."""
    rows = yield Call("earlier_request", owner=owner, key=key)
    return record(Earlier, rows[0]) if rows else None


@operation()
def begin(request: Begun, body_hash: str, ttl: float, patience: float) -> Steps[Earlier | None]:
    """Take the key for `ttl` seconds, and for `patience` seconds if no job follows; returns the earlier request that
    has the key, if there is one."""
    if (yield Call("begin_request", **request._asdict(), body_hash=body_hash, ttl=ttl, patience=patience)):
        return None
    found = yield from earlier(request.owner, request.key).start()
    return found or Earlier(body_hash, None)  # it has just been forgotten: this request can be sent again


@operation(single=True)
def end(request: Begun, job_id: str) -> Steps[bool]:
    """Remember the job that the request creates, in the transaction that creates it. False: another request has taken
    the key meanwhile, and the job must not be created."""
    return bool((yield Call("end_request", **request._asdict(), job_id=job_id)))


@operation(single=True, repeatable=True)
def forget(request: Begun) -> Steps[None]:
    """Let the key go, unless the request has created its job."""
    yield Call("forget_request", **request._asdict())


# --- how many jobs an owner may have


@operation(read=True)
def unfinished(owner: str, most: int) -> Steps[int]:
    """How many jobs of an owner are not finished; `most` means that many or more."""
    return int((yield Call("unfinished_jobs", owner=owner, n=most))[0].number)


@operation()
def unfinished_alone(owner: str, most: int) -> Steps[int]:
    """As `unfinished`, and until the caller's transaction ends no other one can count and add a job of this owner."""
    if (yield from dialect()).many_writers:
        yield Call("lock_owner", owner=owner)
    return (yield from unfinished(owner, most).start())
