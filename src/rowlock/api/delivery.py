"""The task that delivers webhooks: one signed POST to an address that was checked when it was connected to.

What a receiver answers is never stored or logged beyond its status: it comes from a stranger. Redirects are not
followed: they would lead to where nobody has checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp

from rowlock.api.problems import Refusal
from rowlock.api.shapes import END_TYPES, event_data
from rowlock.api.webhooks import checked
from rowlock.client.client import Client
from rowlock.core.config import WebhookSettings
from rowlock.core.errors import Permanent, Retry, SourceError
from rowlock.core.states import State
from rowlock.store import webhooks
from rowlock.store.events import Event
from rowlock.worker.faults import retry_after
from rowlock.worker.public_web import WebTarget
from rowlock.worker.signed_post import Way, post, signed

# What the trigger has stored of the end of a job, beside its state and moment.
TOLD = (
    *("job_id", "task", "attempt", "progress", "phase", "message"),
    *("result_uri", "result_checksum", "error_code", "error_message"),
)


async def deliver(
    client: Client, message_id: str, url: str, owner: str, event: dict[str, Any], way: Way | None = None
) -> None:
    """Send one message. Raises what says whether to try again."""
    settings = client.settings.api
    if not settings.webhooks.enabled:
        raise Permanent("api.webhooks.enabled is off for this worker", code="WEBHOOKS_OFF")
    secrets = await client.perform(webhooks.signing(owner))
    if not secrets:
        raise Retry("the owner has no secret to sign with", code="NO_WEBHOOK_SECRET")
    target = _target(url, settings.webhooks)
    body = json.dumps(message(event, ZoneInfo(settings.zone)), ensure_ascii=False)
    headers = signed(message_id, body, secrets, datetime.now(UTC))
    try:
        hooks = settings.webhooks
        answer = await post(target, body.encode(), headers, hooks.timeout_seconds, private=hooks.allow_private, way=way)
    except TimeoutError:
        raise SourceError(f"{target.host} took too long", code="TIMEOUT") from None
    except (aiohttp.ClientError, OSError) as error:
        # Not the error's own text: it quotes the URL, and what the receiver sent.
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise SourceError(f"{target.host}: {reason}", code="CONNECTION") from None
    if not 200 <= answer.status < 300:
        raise _failure(target.host, answer)


def message(stored: Mapping[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    """What is sent: the type, the moment and, as data, what the job's last event told its clients."""
    state = State(stored["state"])
    at = datetime.fromtimestamp(stored["at"], UTC)
    told = {name: stored[name] for name in TOLD}
    ended = Event(id=0, owner="", type=END_TYPES[state], state=state, at=at, **told)
    data = event_data(ended, zone)
    return {"type": data.pop("type"), "timestamp": data.pop("at"), "data": data}


def _target(url: str, settings: WebhookSettings) -> WebTarget:
    """Checked again: the operator may have forbidden the host since the job was created."""
    try:
        return checked(url, settings)
    except Refusal as refusal:
        raise Permanent(str(refusal), code=refusal.code) from None


def _failure(host: str, answer: aiohttp.ClientResponse) -> Exception:
    """What follows an answer that is not a success. The codes do not begin with HTTP_: repeated refusals such as 403
    would disable the source, and with it the deliveries of other owners to this host."""
    status = answer.status
    if status == 410:
        return Permanent(f"{host} says that this address is gone for good", code="STATUS_410")
    if status >= 500 or status in (408, 429):
        return SourceError(f"{host} answered {status}", code=f"STATUS_{status}", retry_after=retry_after(answer))
    return Retry(f"{host} answered {status}", code=f"STATUS_{status}")
