"""Asking a market, and telling errors that pass from errors that stay.

Passing (the job is retried, and it counts against the market's breaker): timeouts, broken connections, 408, 429, 5xx.
Staying (the job is dead at once): every other status than 200, answers that make no sense, and an address that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import aiohttp

from rowlock import Permanent, SourceError
from rowlock_apps.coins.coin import Coin
from rowlock_apps.coins.listing import MAX_BYTES, Answer, BadAnswer, read_answer

CONNECT_SECONDS, TOTAL_SECONDS = 5, 20  # of one request
LONGEST_PAUSE = 86_400.0  # that a market can ask for
PASSING = {408, 425, 429}

QueryParams = dict[str, str | int | float]


class Market(NamedTuple):
    """Where to ask."""

    id: str
    url: str


def open_http() -> aiohttp.ClientSession:
    """The HTTP client of one worker. How many requests run at once is the engine's affair, not the connector's."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=TOTAL_SECONDS, connect=CONNECT_SECONDS),
        headers={"Accept": "application/json", "User-Agent": "rowlock-coins"},
    )


async def ask(http: aiohttp.ClientSession, market: Market, coin: Coin, more: QueryParams) -> Answer:
    """What the market has of this coin."""
    wanted = more | coin.model_dump()
    try:
        async with http.get(f"{market.url}/search", params=wanted, allow_redirects=False) as response:
            _check(market, response)
            body = await _read(market, response)
            content_type = response.content_type if "Content-Type" in response.headers else ""
    except TimeoutError as error:
        raise SourceError(f"{market.id} did not answer in time", code="TIMEOUT") from error
    except aiohttp.InvalidURL as error:  # a client's error too, but no market's
        raise Permanent(f"the address of {market.id} cannot be asked: {error}", code="BAD_ADDRESS") from error
    except aiohttp.ClientError as error:
        raise SourceError(f"the connection to {market.id} failed: {error}", code="CONNECTION") from error
    try:
        return read_answer(body, content_type)
    except BadAnswer as error:
        raise Permanent(f"the answer of {market.id} cannot be used: {error}", code="BAD_ANSWER") from error


def _check(market: Market, response: aiohttp.ClientResponse) -> None:
    status = response.status
    if status == 200:
        return
    reason, code = f"{market.id} answered {status} {response.reason or ''}".rstrip(), f"HTTP_{status}"
    if status in PASSING or status >= 500:
        raise SourceError(reason, code=code, retry_after=_retry_after(response.headers))
    raise Permanent(reason, code=code)


async def _read(market: Market, response: aiohttp.ClientResponse) -> bytes:
    """The body, as long as it is of a sane size: what is announced may be a lie, and what is packed may unfold."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > MAX_BYTES:
            raise Permanent(f"the answer of {market.id} has more than {MAX_BYTES} bytes", code="BAD_ANSWER")
    return bytes(body)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, given so or as a moment; None if there is none that makes sense."""
    given = headers.get("Retry-After", "").strip()
    try:
        if given.isdigit():
            seconds = float(given)
        else:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), LONGEST_PAUSE)
