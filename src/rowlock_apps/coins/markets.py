"""Stand-in markets on loopback, for the demo, for tests and for trying things out. Not part of the system.

Each has a behaviour: steady, flaky (fails at first, then works), metered (429 with Retry-After when asked too often),
dead (its port refuses connections). All of them count their requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, timedelta
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Query = Mapping[str, str]
Behaviour = Callable[[Query], Awaitable[web.Response]]

SHOWN_ON = date(2026, 1, 15)
TYPES = ("sold", "sold", "sold", "ask", "bid")


class Markets:
    """One server on a free port of 127.0.0.1; the market `flaky` is at `url("flaky")`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()  # requests, by market
        self._behaviours: dict[str, Behaviour] = {}
        self._dead: dict[str, socket.socket] = {}
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        server = web.Application()
        server.router.add_get("/{market}/search", self._serve)
        self._runner = web.AppRunner(server, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._dead.values():
            listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def add(self, market: str, behaviour: Behaviour) -> str:
        """Open a market; returns its address."""
        self._behaviours[market] = behaviour
        return self.url(market)

    def add_dead(self, market: str) -> str:
        """A market that is gone: its port is reserved, so that no other program gets it, and refuses connections."""
        taken = self._dead[market] = socket.socket()
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/{market}"

    def url(self, market: str) -> str:
        return f"http://127.0.0.1:{self._port}/{market}"

    async def _serve(self, request: web.Request) -> web.Response:
        market = request.match_info["market"]
        if market not in self._behaviours:
            raise web.HTTPNotFound
        self.asked[market] += 1
        return await self._behaviours[market]({"market": market, **request.query})


# --- behaviours


def steady(seconds: float = 0.0) -> Behaviour:
    """Answers after a delay."""

    async def answer(query: Query) -> web.Response:
        await asyncio.sleep(seconds)
        return listed(listings(query))

    return answer


def flaky(failures: int) -> Behaviour:
    """Fails this many times, then works."""
    left = failures

    async def answer(query: Query) -> web.Response:
        nonlocal left
        if left > 0:
            left -= 1
            return web.Response(status=503, text="try again")
        return listed(listings(query))

    return answer


def metered(most: int, seconds: int = 1) -> Behaviour:
    """Answers `most` requests; then all requests of the next `seconds` get 429 with Retry-After, and it starts
    again."""
    left, closed_until = most, 0.0

    async def answer(query: Query) -> web.Response:
        nonlocal left, closed_until
        now = time.monotonic()
        if left == 0:
            left, closed_until = most, now + seconds
        if now < closed_until:
            return web.Response(status=429, text="slow down", headers={"Retry-After": str(seconds)})
        left -= 1
        return listed(listings(query))

    return answer


def listed(rows: list[dict[str, Any]]) -> web.Response:
    """An answer in the agreed format."""
    return web.json_response({"listings": rows})


def listings(query: Query) -> list[dict[str, Any]]:
    """Listings of a coin, equal in every call; the last but one has no id, the last is another coin."""
    year, mint = query["year"], query.get("mintmark", "")
    struck = f"{year}-{mint}" if mint else year
    name = f"{struck} {query.get('series', '')} {query['denomination']}".replace("  ", " ")
    middle = 20 + hashlib.sha256(name.encode()).digest()[0]  # what such a coin costs, …
    chance = hashlib.sha256(f"{query.get('market')} {name}".encode()).digest()  # … more or less
    rows: list[dict[str, Any]] = [
        {
            "external_id": f"{struck}-{number}",
            "url": f"https://market.example/{struck}/{number}?from=search",
            "title": f"{name}, nr {number}",
            "price": f"{middle * (80 + chance[number + 1] % 40) / 100:.2f}",
            "currency": "USD",
            "type": kind,
            "date": (SHOWN_ON - timedelta(days=number)).isoformat(),
        }
        for number, kind in enumerate(TYPES)
    ]
    del rows[-1]["external_id"]
    rows.append(rows[0] | {"external_id": "other", "title": f"{int(year) - 1} proof set", "price": "999.00"})
    return rows
