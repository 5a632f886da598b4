"""Webhooks of jobs, and the secrets that sign them. A trigger on the table of finished jobs enqueues each delivery in
the transaction that ends the job."""

from __future__ import annotations

import base64
import secrets as randomness
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record

TASK = "rowlock.webhook"  # the trigger enqueues it by this name
CLASS = "webhook"  # of sources: each host is one
PREFIX = "whsec_"  # of secrets, as Standard Webhooks have it
HINT = len(PREFIX) + 4


class Webhook(NamedTuple):
    """Where to deliver, and how often to try."""

    url: str
    source: str
    queue: str
    max_attempts: int
    backoff: str
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Secret:
    """What may be shown of a secret."""

    id: str
    owner: str
    hint: str
    created_at: datetime
    expires_at: datetime | None


@operation(single=True)
def add(job_id: str, owner: str, webhook: Webhook) -> Steps[None]:
    """Store the webhook of a job, in the transaction that creates the job."""
    yield Call("add_webhook", job_id=job_id, owner=owner, **webhook._asdict())


@operation(read=True)
def deliveries(job_id: str) -> Steps[list[str]]:
    """The ids of the jobs that deliver the webhook of a job, oldest first: one for each end of the job."""
    return [row.id for row in (yield Call("webhook_deliveries", job_id=job_id))]


@operation(read=True)
def of_delivery(job_id: str, delivery_id: str) -> Steps[tuple[str, str] | None]:
    """The URL and the owner of the webhook that the job `delivery_id` delivers; None if no trigger has made it for the
    end of `job_id`."""
    rows = yield Call("webhook_of_delivery", job_id=job_id, delivery_id=delivery_id)
    return (rows[0].url, rows[0].owner) if rows else None


# --- secrets


def new_secret() -> str:
    """A secret of 256 random bits, to be shown once."""
    return PREFIX + base64.b64encode(randomness.token_bytes(32)).decode()


@operation()
def rotate(owner: str, secret: str, overlap: float) -> Steps[str]:
    """Sign with a new secret from now on, and for `overlap` more seconds also with the one before; returns its id."""
    secret_id = new_id()
    yield Call("forget_webhook_secrets", owner=owner)
    yield Call("end_webhook_secrets", owner=owner, overlap=overlap)
    yield Call("create_webhook_secret", id=secret_id, owner=owner, secret=secret, hint=secret[:HINT])
    return secret_id


@operation(read=True)
def signing_secrets(owner: str) -> Steps[list[str]]:
    """The secrets that sign the webhooks of an owner now, newest first: two during a rotation."""
    return [row.secret for row in (yield Call("signing_secrets", owner=owner))]


@operation(read=True)
def secrets(limit: int = 1000) -> Steps[list[Secret]]:
    """What may be shown of the secrets that sign now, by owner."""
    return [record(Secret, row) for row in (yield Call("list_webhook_secrets", n=limit))]
