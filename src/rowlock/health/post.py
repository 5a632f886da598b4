"""Delivers one signed message (Standard Webhooks), of a webhook or an alert. Needs rowlock[webhooks].

The address is checked when it is connected to. Redirects are not followed, because nobody has checked where they lead.
Of a receiver's answer only status and headers are read.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
from standardwebhooks import Webhook as Signer
from yarl import URL

from rowlock.client.version import VERSION
from rowlock.core.errors import SourceError
from rowlock.public_web import Dial, Resolve, WebTarget, public_address, public_socket, system_resolve


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach a receiver. Both are arguments, so that a test can have a DNS of its own."""

    resolve: Resolve = system_resolve
    dial: Dial = public_socket


async def deliver(
    target: WebTarget,
    message_id: str,
    message: Mapping[str, Any],
    secrets: Sequence[str],
    seconds: float,
    *,
    private: bool,
    way: Way | None = None,
) -> aiohttp.ClientResponse:
    """Sign and send a message; returns the answer, whatever its status. Raises SourceError if there is none (code
    TIMEOUT, CONNECTION or DNS), or AddressRefused for an address that is not public unless `private` allows it."""
    body = json.dumps(message, ensure_ascii=False)
    headers = signed(message_id, body, secrets, datetime.now(UTC))
    try:
        return await post(target, body.encode(), headers, seconds, private=private, way=way)
    except TimeoutError:
        raise SourceError(f"{target.host} did not answer within {seconds:g} s", code="TIMEOUT") from None
    except (aiohttp.ClientError, OSError) as error:
        # The error's own text is left out: it may quote the URL with a secret in it, and the receiver's data.
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise SourceError(f"{target.host}: {reason}", code="CONNECTION") from None


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


async def post(
    target: WebTarget,
    body: bytes,
    headers: dict[str, str],
    seconds: float,
    *,
    private: bool,
    way: Way | None = None,
) -> aiohttp.ClientResponse:
    """Send a request; returns the answer, of which status and headers may be read. Raises TimeoutError, OSError,
    aiohttp.ClientError, or AddressRefused for an address that is not public unless `private` allows it."""
    async with asyncio.timeout(seconds):  # also for the DNS, which may hang
        way = way or (Way(dial=_any_socket) if private else Way())
        if private:
            address = (await way.resolve(target.host.strip("[]")))[0]
        else:
            address = await public_address(target, way.resolve)
        return await _post_to(address, target, body, headers, way)


async def _post_to(
    address: str, target: WebTarget, body: bytes, headers: dict[str, str], way: Way
) -> aiohttp.ClientResponse:
    connector = aiohttp.TCPConnector(
        socket_factory=way.dial, use_dns_cache=False, force_close=True, happy_eyeballs_delay=None
    )
    async with (
        aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(
            URL(target.at(address), encoded=True),
            data=body,
            headers={**headers, "Host": target.authority},
            allow_redirects=False,
            server_hostname=target.host.strip("[]") if target.scheme == "https" else None,
        ) as answer,
    ):
        return answer


def _any_socket(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = info
    return socket.socket(family, kind, protocol)
