"""The task that delivers webhooks: one signed POST to an address that was checked when it was connected to.

What a receiver answers is never stored or logged beyond its status: it comes from a stranger. Redirects are not
followed: they would lead to where nobody has checked.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
from standardwebhooks import Webhook as Signer
from yarl import URL

from rowlock.api.problems import Refusal
from rowlock.api.shapes import END_TYPES, event_data
from rowlock.api.webhooks import checked
from rowlock.client.client import Client
from rowlock.client.version import VERSION
from rowlock.core.config import WebhookSettings
from rowlock.core.errors import Permanent, Retry, SourceError
from rowlock.core.states import State
from rowlock.store import webhooks
from rowlock.store.events import Event
from rowlock.worker.faults import retry_after
from rowlock.worker.public_web import Dial, Resolve, WebTarget, public_address, public_socket, system_resolve

# What the trigger has stored of the end of a job, beside its state and moment.
TOLD = (
    *("job_id", "task", "attempt", "progress", "phase", "message"),
    *("result_uri", "result_checksum", "error_code", "error_message"),
)


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach a receiver. Both are arguments, so that a test can have a DNS of its own."""

    resolve: Resolve = system_resolve
    dial: Dial = public_socket


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
        await _post(target, settings.webhooks, way, body.encode(), headers)
    except TimeoutError:
        raise SourceError(f"{target.host} took too long", code="TIMEOUT") from None
    except (aiohttp.ClientError, OSError) as error:
        # Not the error's own text: it quotes the URL, and what the receiver sent.
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise SourceError(f"{target.host}: {reason}", code="CONNECTION") from None


def message(stored: Mapping[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    """What is sent: the type, the moment and, as data, what the job's last event told its clients."""
    state = State(stored["state"])
    at = datetime.fromtimestamp(stored["at"], UTC)
    told = {name: stored[name] for name in TOLD}
    ended = Event(id=0, owner="", type=END_TYPES[state], state=state, at=at, **told)
    data = event_data(ended, zone)
    return {"type": data.pop("type"), "timestamp": data.pop("at"), "data": data}


def signed(message_id: str, body: str, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """The headers of Standard Webhooks: during a rotation a signature by each secret."""
    signatures = [Signer(secret).sign(message_id, now, body) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
        "Content-Type": "application/json",
        "User-Agent": f"rowlock/{VERSION}",
    }


def _target(url: str, settings: WebhookSettings) -> WebTarget:
    """Checked again: the operator may have forbidden the host since the job was created."""
    try:
        return checked(url, settings)
    except Refusal as refusal:
        raise Permanent(str(refusal), code=refusal.code) from None


async def _post(
    target: WebTarget, settings: WebhookSettings, way: Way | None, body: bytes, headers: dict[str, str]
) -> None:
    if settings.allow_private:
        address = (await system_resolve(target.host.strip("[]")))[0]
        way = way or Way(dial=_any_socket)
    else:
        way = way or Way()
        address = await public_address(target, way.resolve)
    connector = aiohttp.TCPConnector(
        socket_factory=way.dial, use_dns_cache=False, force_close=True, happy_eyeballs_delay=None
    )
    async with (
        asyncio.timeout(settings.timeout_seconds),
        aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(
            URL(target.at(address), encoded=True),
            data=body,
            headers={**headers, "Host": target.authority},
            allow_redirects=False,
            server_hostname=target.host.strip("[]") if target.scheme == "https" else None,
        ) as answer,
    ):
        if not 200 <= answer.status < 300:
            raise _failure(target.host, answer)


def _failure(host: str, answer: aiohttp.ClientResponse) -> Exception:
    """What follows an answer that is not a success. The codes do not begin with HTTP_: repeated refusals such as 403
    would disable the source, and with it the deliveries of other owners to this host."""
    status = answer.status
    if status == 410:
        return Permanent(f"{host} says that this address is gone for good", code="STATUS_410")
    if status >= 500 or status in (408, 429):
        return SourceError(f"{host} answered {status}", code=f"STATUS_{status}", retry_after=retry_after(answer))
    return Retry(f"{host} answered {status}", code=f"STATUS_{status}")


def _any_socket(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = info
    return socket.socket(family, kind, protocol)
