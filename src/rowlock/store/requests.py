"""Requests to create a job under an Idempotency-Key: the same request again is answered with the same job."""

from __future__ import annotations

from typing import NamedTuple

from rowlock.store.engines.operation import Call, Steps, operation


class Earlier(NamedTuple):
    """A request that has the key already."""

    body_hash: str
    job_id: str | None


@operation()
def begin(owner: str | None, key: str, body_hash: str, ttl: float) -> Steps[Earlier | None]:
    """Remember a request for `ttl` seconds; answers the earlier one with the same key, if there is one. Part of the
    transaction that creates the job: if that is rolled back, the request is forgotten."""
    if (yield Call("begin_request", owner=owner or "", key=key, body_hash=body_hash, ttl=ttl)):
        return None
    rows = yield Call("earlier_request", owner=owner or "", key=key)
    return Earlier(rows[0].body_hash, rows[0].job_id)


@operation()
def end(owner: str | None, key: str, job_id: str) -> Steps[None]:
    """Remember the job that the request created."""
    yield Call("end_request", owner=owner or "", key=key, job_id=job_id)


@operation(single=True, repeatable=True)
def prune(n: int) -> Steps[int]:
    """Forget up to `n` requests whose time is up; answers how many."""
    return len((yield Call("prune_requests", n=n)))
