"""Coins, listings and markets that do as a test says."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from rowlock.store.jobs import leases
from rowlock_apps.coins import Coin, Coins
from rowlock_apps.coins.markets import Behaviour, Query, listed

MORGAN = Coin(year=1921, mintmark="D", denomination="Dollar", series="Morgan")
PEACE = Coin(year=1922, denomination="Dollar", series="Peace")
LISTING: dict[str, Any] = {
    "external_id": "1",
    "url": "https://market.example/1",
    "title": "1921-D Morgan Dollar",
    "price": "41.50",
    "currency": "USD",
    "type": "sold",
    "date": "2026-01-15",
}


def listing(**changes: Any) -> dict[str, Any]:
    """A good listing, but for these changes."""
    return LISTING | changes


class Says:
    """A market that says what the test wants it to say, from one moment to the next."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows) or [LISTING]
        self.instead: Callable[[], web.Response] | None = None  # of an answer with those rows

    async def __call__(self, query: Query) -> web.Response:
        return self.instead() if self.instead else listed(self.rows)


def says(status: int, text: str = "", **headers: str) -> Callable[[], web.Response]:
    """An answer that is not as agreed; header names with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.Response(status=status, text=text, headers=named)


def hanging(gate: asyncio.Event, arrived: asyncio.Event) -> Behaviour:
    """A market that answers when the gate opens."""

    async def answer(query: Query) -> web.Response:
        arrived.set()
        await gate.wait()
        return listed([LISTING])

    return answer


async def fetch(coins: Coins, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    """What is in the tables."""
    async with coins.app.transaction() as tx:
        return [tuple(row) for row in await tx.fetch(sql, *args)]


async def reclaim(coins: Coins) -> None:
    """What a sweep does; a fresh worker waits for one whole lease before its first."""
    await (await coins.app.store()).run(leases.reclaim([0.5], 0.0, coins.app.keep))


async def until(holds: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """Wait until something is true; the event loop, and the markets in it, go on meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := holds():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {seconds:g} s in vain: {what}")
