"""Fetches the head of a page: every hop checked by the guard, every answer bounded in bytes and time.

`resolve` and `dial` are arguments, so that tests and the demo can have their own web. `dial` makes the socket for an
address that the guard has let through (it is aiohttp's `socket_factory`); the one used in production looks at the
address once more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import aiohttp
from yarl import URL

from rowlock import Permanent, SourceError
from rowlock.public_web import (
    AddressRefused,
    Dial,
    Resolve,
    WebTarget,
    public_address,
    public_socket,
    system_resolve,
    web_target,
)

from . import challenge, head, robots
from .answers import REDIRECTS, captcha, check_status
from .body import inflated
from .head import Head, HeadReader

ROBOT = "rowlock-bookmarks"
MOST_REDIRECTS = 5
LOOK_SECONDS = 3.0  # for the part of a page that is only searched for a challenge
PAGES = {"text/html", "application/xhtml+xml"}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a server may take, in seconds."""

    total: float = 30.0  # all hops together
    headers: float = 10.0  # to the end of the headers of one answer
    idle: float = 10.0  # between two pieces of a body


@dataclass(frozen=True, slots=True)
class Page:
    """What is kept of a fetched page."""

    final_url: str
    content_type: str
    head: Head


class _NoNames(aiohttp.abc.AbstractResolver):
    """The guard gives addresses only; a name here is a bug and is not resolved."""

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[Any]:
        raise AddressRefused(f"{host} was not resolved by the guard", code="ADDRESS_REFUSED")

    async def close(self) -> None: ...


class Fetcher:
    """Fetches pages. Made by `open_fetcher`."""

    def __init__(
        self, session: aiohttp.ClientSession, resolve: Resolve, ports: Collection[int], limits: Limits
    ) -> None:
        self._session, self._resolve, self._ports, self._limits = session, resolve, ports, limits
        self._robots = robots.Robots(self._ask_robots)

    async def page(self, url: str) -> Page:
        """The page at a URL, if its server gives it to robots."""
        try:
            async with asyncio.timeout(self._limits.total):
                target = web_target(url, self._ports)
                async with self._followed(target, obey=True) as (target, answer):
                    await self._check_refusal(target, answer)
                    check_status(target.host, answer.status, answer.headers)
                    return await self._read(target, answer)
        except aiohttp.ServerTimeoutError:
            raise SourceError(f"{target_host(url)} fell silent", code="TIMEOUT") from None
        except TimeoutError:
            raise SourceError(f"{target_host(url)} took longer than {self._limits.total:g} s", code="TIMEOUT") from None
        except (aiohttp.ClientError, OSError) as error:
            # Not the error's own text: it quotes what the server sent.
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            raise SourceError(f"{target_host(url)}: {reason}", code="CONNECTION") from None

    @asynccontextmanager
    async def _followed(
        self, target: WebTarget, *, obey: bool
    ) -> AsyncIterator[tuple[WebTarget, aiohttp.ClientResponse]]:
        """The answer at the end of all redirects, each of which is checked like a first request."""
        for _ in range(MOST_REDIRECTS + 1):
            if obey and not (await self._robots.of(target.origin)).allows(target.path):
                raise Permanent(f"robots.txt of {target.host} forbids it", code="ROBOTS")
            async with self._answer(target) as answer:
                location = answer.headers.get("Location")
                if answer.status not in REDIRECTS or not location:
                    yield target, answer
                    return
                target = redirected(target, location, self._ports)
        raise Permanent(f"more than {MOST_REDIRECTS} redirects, at last to {target.host}", code="TOO_MANY_REDIRECTS")

    @asynccontextmanager
    async def _answer(self, target: WebTarget) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request to one checked address, with the name in Host and in TLS; nothing is carried from hop to hop."""
        address = await public_address(target, self._resolve)
        request = self._session.get(
            URL(target.at(address), encoded=True),
            headers={"Host": target.authority},
            allow_redirects=False,
            server_hostname=target.host.strip("[]") if target.scheme == "https" else None,
        )
        try:
            async with asyncio.timeout(self._limits.headers) as limit:
                answer = await request
        except TimeoutError:
            if not limit.expired():
                raise
            raise SourceError(f"no answer of {target.host} in {self._limits.headers:g} s", code="TIMEOUT") from None
        try:
            yield answer
        finally:
            answer.close()  # never back to a pool: the rest of the body is not read

    async def _read(self, target: WebTarget, answer: aiohttp.ClientResponse) -> Page:
        content_type = _content_type(answer)
        if content_type not in PAGES:
            return Page(target.url, content_type, Head())
        reader = HeadReader()
        async with aclosing(self._body(answer, head.MOST_BYTES)) as steps:
            async for step in steps:
                reader.feed(step)
                if reader.done:
                    break
            found = reader.head(target.url, answer.charset)
            if not challenge.describes_itself(found):
                await self._read_on(reader, steps)
        if challenge.is_challenge(answer.status, found, reader.beginning(challenge.MOST_BYTES)):
            raise captcha(target.host)
        return Page(target.url, content_type, found)

    async def _check_refusal(self, target: WebTarget, answer: aiohttp.ClientResponse) -> None:
        """Raise if the body of a refusal is a captcha or another challenge."""
        if answer.status not in challenge.REFUSALS or _content_type(answer) not in PAGES:
            return
        reader = HeadReader()
        with suppress(Permanent, SourceError):  # its body cannot be unpacked: the status is enough
            async with aclosing(self._body(answer, challenge.MOST_BYTES)) as steps:
                await self._read_on(reader, steps)
        found = reader.head(target.url, answer.charset)
        if challenge.is_challenge(answer.status, found, reader.beginning(challenge.MOST_BYTES)):
            raise captcha(target.host)

    async def _read_on(self, reader: HeadReader, steps: AsyncIterator[bytes]) -> None:
        """The part of a page that shows a challenge, without waiting long for it, or for its end."""
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(min(LOOK_SECONDS, self._limits.idle)):
                while len(reader) < challenge.MOST_BYTES and (step := await anext(steps, b"")):
                    reader.feed(step)

    async def _ask_robots(self, origin: str) -> robots.Rules:
        """RFC 9309: what is not there (4xx) forbids nothing; a server in trouble forbids everything for now."""
        target = web_target(f"{origin}/robots.txt", self._ports)
        async with self._followed(target, obey=False) as (target, answer):
            if 400 <= answer.status < 500 and answer.status != 429:
                return robots.EVERYTHING
            check_status(target.host, answer.status, answer.headers)
            try:
                async with aclosing(self._body(answer, robots.MOST_BYTES)) as steps:
                    data = b"".join([step async for step in steps])
            except Permanent as error:  # nothing is known about the page yet
                raise SourceError(f"robots.txt of {target.host}: {error}", code=error.code) from None
        return robots.parse(data.decode("utf-8", "replace"), ROBOT)

    def _body(self, answer: aiohttp.ClientResponse, most: int) -> AsyncGenerator[bytes, None]:
        return inflated(answer.content.iter_any(), answer.headers.get("Content-Encoding", ""), most)


def _content_type(answer: aiohttp.ClientResponse) -> str:
    return answer.content_type.lower()[:100]


def target_host(url: str) -> str:
    """The host of a URL, for messages."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2][:255]


@asynccontextmanager
async def open_fetcher(
    resolve: Resolve = system_resolve,
    dial: Dial = public_socket,
    *,
    ports: Collection[int] = (80, 443),
    limits: Limits = Limits(),
) -> AsyncIterator[Fetcher]:
    """A fetcher for the time of a block. It takes no proxy from the environment, keeps no cookie, and uses each
    connection once."""
    connector = aiohttp.TCPConnector(
        resolver=_NoNames(), use_dns_cache=False, socket_factory=dial, force_close=True, happy_eyeballs_delay=None
    )
    async with aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.headers, sock_read=limits.idle),
        headers={
            "User-Agent": f"{ROBOT}/1.0",
            "Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.1",
            "Accept-Encoding": "gzip, identity",
        },
    ) as session:
        yield Fetcher(session, resolve, ports, limits)


def redirected(target: WebTarget, location: str, ports: Collection[int]) -> WebTarget:
    """The target of a redirect; it must pass all checks of a first request."""
    try:
        joined = urljoin(target.url, location)
    except ValueError:
        raise AddressRefused(f"{target.host} redirects to what is no URL", code="URL_REFUSED") from None
    return web_target(joined, ports, said=f"{target.host} redirects to what is")
