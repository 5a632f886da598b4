"""Ask a market, and distinguish temporary errors from permanent ones.

Temporary (the job is retried, and the market's breaker counts it): timeouts, broken connections, 408, 425, 429, 5xx.
Permanent (the job is dead at once): every other status without an answer, answers that cannot be used, and an invalid
address. 204 is an answer without listings. A redirect is followed on the market's own host only: otherwise a market
could make this worker call any host. The error of such a redirect says how to change the address.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import aiohttp
from yarl import URL

from rowlock import Permanent, SourceError
from rowlock_apps.coins.coin import Coin
from rowlock_apps.coins.listing import MAX_BYTES, Answer, BadAnswer, read_answer

CONNECT_SECONDS, TOTAL_SECONDS = 5, 20  # for one request
LONGEST_PAUSE = 86_400.0  # the longest Retry-After that is used, in seconds
PASSING = {408, 425, 429}
REDIRECTS = {301, 302, 303, 307, 308}
MOST_REDIRECTS = 3

QueryParams = dict[str, str | int | float]


class Market(NamedTuple):
    """Where to ask."""

    id: str
    url: str


def open_http() -> aiohttp.ClientSession:
    """The HTTP client of one worker. Rowlock limits how many requests run at once, so the connector does not."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=TOTAL_SECONDS, connect=CONNECT_SECONDS),
        headers={"Accept": "application/json", "User-Agent": "rowlock-coins"},
    )


async def ask(http: aiohttp.ClientSession, market: Market, coin: Coin, more: QueryParams) -> Answer:
    """The market's listings of this coin."""
    try:
        body, content_type = await _get(
            http, market, URL(f"{market.url}/search").update_query(more | coin.model_dump())
        )
    except TimeoutError as error:
        raise SourceError(f"{market.id} did not answer in time", code="TIMEOUT") from error
    except ValueError as error:  # aiohttp's InvalidURL is a ClientError, but not the market's fault
        raise Permanent(f"the address of {market.id} cannot be asked: {error}", code="BAD_ADDRESS") from error
    except aiohttp.ClientError as error:
        raise SourceError(f"the connection to {market.id} failed: {error}", code="CONNECTION") from error
    if body is None:
        return Answer()
    try:
        return read_answer(body, content_type)
    except BadAnswer as error:
        raise Permanent(f"the answer of {market.id} cannot be used: {error}", code="BAD_ANSWER") from error


async def _get(http: aiohttp.ClientSession, market: Market, url: URL) -> tuple[bytes | None, str]:
    """The body of the answer and its type; no body for 204."""
    for _ in range(1 + MOST_REDIRECTS):
        async with http.get(url, allow_redirects=False) as response:
            if response.status in REDIRECTS:
                url = _moved(market, url, response)
                continue
            if response.status == 204:
                return None, ""
            _check(market, response)
            return await _read(market, response), response.content_type if "Content-Type" in response.headers else ""
    raise Permanent(f"{market.id} redirects more than {MOST_REDIRECTS} times", code="REDIRECTS")


def _moved(market: Market, asked: URL, response: aiohttp.ClientResponse) -> URL:
    """Where a redirect leads, on the same host and not from https to http."""
    code = f"HTTP_{response.status}"
    if not response.headers.get("Location"):
        raise Permanent(f"{market.id} redirects ({response.status}) without saying where to", code=code)
    try:
        there = asked.join(URL(response.headers["Location"]))
    except ValueError as error:
        raise Permanent(f"{market.id} redirects to what is no address: {error}", code=code) from error
    same_port = there.port == asked.port or (asked.port, there.port) == (80, 443)
    if there.host != asked.host or not same_port or (asked.scheme, there.scheme) == ("https", "http"):
        raise Permanent(
            f"{market.id} has moved to {there.origin()}; if that is right: python -m rowlock_apps.coins market"
            f" {market.id} {there.with_query(None).with_fragment(None)}".removesuffix("/search"),
            code=code,
        )
    return there


def _check(market: Market, response: aiohttp.ClientResponse) -> None:
    status = response.status
    if status == 200:
        return
    reason, code = f"{market.id} answered {status} {response.reason or ''}".rstrip(), f"HTTP_{status}"
    if status in PASSING or status >= 500:
        raise SourceError(reason, code=code, retry_after=_retry_after(response.headers))
    raise Permanent(reason, code=code)


async def _read(market: Market, response: aiohttp.ClientResponse) -> bytes:
    """The body, up to MAX_BYTES. Content-Length is not trusted, and a compressed body may unpack to far more."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > MAX_BYTES:
            raise Permanent(f"the answer of {market.id} has more than {MAX_BYTES} bytes", code="BAD_ANSWER")
    return bytes(body)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, from a number or a date; None if there is none that can be read."""
    given = headers.get("Retry-After", "").strip()
    try:
        if given.isdigit():
            seconds = float(given)
        else:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), LONGEST_PAUSE)
