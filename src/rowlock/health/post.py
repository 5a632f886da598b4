"""Delivers one signed message (Standard Webhooks) of a webhook or an alert. Needs rowlock[webhooks].

The address is checked when connecting. Redirects aren't followed, because their addresses haven't been checked. Only
the status and headers of the response are read.
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

from rowlock.client.settings import VERSION
from rowlock.core.errors import SourceError
from rowlock.public_web import Dial, Resolve, WebTarget, public_address, public_socket, system_resolve


@dataclass(frozen=True, slots=True)
class Transport:
    """How to reach a receiver; tests replace the DNS."""

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
    transport: Transport | None = None,
) -> aiohttp.ClientResponse:
    """Sign a message with each secret (several during a rotation) and send it; returns the response, whatever its
    status. Raises SourceError without a response (code TIMEOUT, CONNECTION or DNS), and AddressRefused for an address
    that is not public unless `private` allows it."""
    body = json.dumps(message, ensure_ascii=False)
    now = datetime.now(UTC)
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Signer(secret).sign(message_id, now, body) for secret in secrets),
        "Content-Type": "application/json",
        "User-Agent": f"rowlock/{VERSION}",
    }
    try:
        return await post(target, body.encode(), headers, seconds, private=private, transport=transport)
    except TimeoutError:
        raise SourceError(f"{target.host} did not answer within {seconds:g} s", code="TIMEOUT") from None
    except (aiohttp.ClientError, OSError) as error:
        # Leave out the error's own text: it may quote the URL, which may contain a secret, or the receiver's data.
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise SourceError(f"{target.host}: {reason}", code="CONNECTION") from None


async def post(
    target: WebTarget,
    body: bytes,
    headers: dict[str, str],
    seconds: float,
    *,
    private: bool,
    transport: Transport | None = None,
) -> aiohttp.ClientResponse:
    """Send a request; returns the response, of which only status and headers can be read. Raises TimeoutError, OSError,
    aiohttp.ClientError, or AddressRefused for an address that is not public unless `private` allows it."""
    by = transport or (Transport(dial=lambda info: socket.socket(*info[:3])) if private else Transport())
    host = target.host.strip("[]")
    async with asyncio.timeout(seconds):  # includes the DNS, which may hang
        address = (await by.resolve(host))[0] if private else await public_address(target, by.resolve)
        connector = aiohttp.TCPConnector(
            socket_factory=by.dial, use_dns_cache=False, force_close=True, happy_eyeballs_delay=None
        )
        async with (
            aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.post(
                URL(target.at(address), encoded=True),
                data=body,
                headers={**headers, "Host": target.authority},
                allow_redirects=False,
                server_hostname=host if target.scheme == "https" else None,
            ) as answer,
        ):
            return answer
