"""The task that delivers webhooks: one signed POST, to an IP address that is checked when the connection is made.

Of the receiver's answer only the status is stored or logged, because its content is not trusted. Redirects are not
followed, because their targets are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp

from rowlock.api.jobs import webhooks
from rowlock.api.jobs.webhook_routes import checked
from rowlock.api.live.events import Event
from rowlock.api.problems import Refusal
from rowlock.api.schemas import END_TYPES, event_data
from rowlock.client.client import Client
from rowlock.core.config import WebhookSettings
from rowlock.core.errors import Permanent, Retry, SourceError
from rowlock.core.states import State
from rowlock.health import post
from rowlock.health.post import Way
from rowlock.public_web import WebTarget
from rowlock.store.engine.ids import valid_id
from rowlock.worker.attempt.blame import retry_after

# The fields that the database trigger stores when a job ends, besides its state and the time.
TOLD = (
    *("job_id", "task", "attempt", "progress", "phase", "message"),
    *("result_uri", "result_checksum", "error_code", "error_message"),
)

LONGEST_PAUSE = 300.0  # seconds for which one answer pauses a host, as long as an open breaker does


async def deliver_job(client: Client, delivery_id: str, event: Any) -> None:
    """Carry out the job that a trigger has made for a webhook. URL and owner are those of the webhook: somebody who
    inserts a job of this task must not have a message signed with an owner's secret."""
    told = valid_id(str(event.get("job_id"))) if isinstance(event, dict) else None
    found = None if told is None else await client.perform(webhooks.of_delivery(told, delivery_id))
    if found is None:
        raise Permanent("this job delivers no webhook: the end of a job did not make it", code="NO_WEBHOOK")
    await deliver(client, delivery_id, *found, event)


async def deliver(
    client: Client, message_id: str, url: str, owner: str, event: dict[str, Any], way: Way | None = None
) -> None:
    """Send one message. The exception that it raises decides whether it is tried again."""
    settings = client.settings.api
    if not settings.webhooks.enabled:
        raise Permanent("api.webhooks.enabled is off for this worker", code="WEBHOOKS_OFF")
    secrets = await client.perform(webhooks.signing(owner))
    if not secrets:
        raise Retry("the owner has no secret to sign webhooks with", code="NO_WEBHOOK_SECRET")
    target = _target(url, settings.webhooks)
    body, seconds = message(event, ZoneInfo(settings.zone)), settings.webhooks.timeout_seconds
    private = settings.webhooks.allow_private
    answer = await post.deliver(target, message_id, body, secrets, seconds, private=private, way=way)
    if not 200 <= answer.status < 300:
        raise _failure(target.host, answer)


def message(stored: Mapping[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    """The body: the type, the time and, as data, the fields of the job's last event."""
    state = State(stored["state"])
    at = datetime.fromtimestamp(stored["at"], UTC)
    told = {name: stored[name] for name in TOLD}
    ended = Event(id=0, owner="", type=END_TYPES[state], state=state, at=at, **told)
    data = event_data(ended, zone)
    return {"type": data.pop("type"), "timestamp": data.pop("at"), "data": data}


def _target(url: str, settings: WebhookSettings) -> WebTarget:
    """Check the URL again: the operator may have disallowed the host since the job was created."""
    try:
        return checked(url, settings)
    except Refusal as refusal:
        raise Permanent(str(refusal), code=refusal.code) from None


def _failure(host: str, answer: aiohttp.ClientResponse) -> Exception:
    """The exception for an answer that is no success. Its code must not begin with HTTP_: repeated HTTP_403
    errors, say, would disable the source, and so the deliveries of other owners to this host. For the same reason a
    long Retry-After delays this delivery alone: an owner chooses the receiver, and may share the host with others."""
    status, wait = answer.status, retry_after(answer)
    if status == 410:
        return Permanent(f"{host} answered 410: this address no longer exists", code="STATUS_410")
    if (status >= 500 or status in (408, 429)) and (wait or 0.0) <= LONGEST_PAUSE:
        return SourceError(f"{host} answered {status}", code=f"STATUS_{status}", retry_after=wait)
    return Retry(f"{host} answered {status}", code=f"STATUS_{status}", after=wait)
