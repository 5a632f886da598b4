"""Errors that pass and errors that stay, backoff, rates and breakers, by a clock that the test moves."""

import asyncio
import time
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from apps.coins.helpers import LISTING, MORGAN, PEACE, Says, fetch, hanging, says
from apps.engines import ONE_ENGINE
from rowlock import FakeClock, Permanent, SourceError
from rowlock.core.job import Job
from rowlock.testing import Testing
from rowlock_apps.coins import Coin, Coins
from rowlock_apps.coins import ask as asking
from rowlock_apps.coins.ask import Market, ask, open_http
from rowlock_apps.coins.listing import MAX_BYTES
from rowlock_apps.coins.markets import Markets
from support.each import each


@pytest.fixture
async def market(coins: Coins, t: Testing, markets: Markets) -> Says:
    """One market, `says`, that says what the test wants."""
    says = Says()
    await coins.set_market("says", markets.add("says", says))
    return says


async def the_job(t: Testing) -> Job:
    (job,) = await t.enqueued("coins.scrape")
    return job


# --- which error is which


def large() -> web.Response:
    """Right in everything but its size."""
    return web.Response(body=b'{"listings": []' + b" " * MAX_BYTES + b"}", content_type="application/json")


@each(
    "answer, code",
    [
        (says(408), "HTTP_408"),
        (says(429), "HTTP_429"),
        (says(500), "HTTP_500"),
        (says(503), "HTTP_503"),
    ],
)
async def test_a_rate_limit_or_a_broken_market_is_a_source_error(markets: Markets, answer: Any, code: str) -> None:
    """S4.4: a rate limit or a market in trouble is the market's fault, and passes."""
    market = Says()
    market.instead = answer
    async with open_http() as http:
        with pytest.raises(SourceError, match=f"says answered {code[5:]}") as raised:
            await ask(http, Market("says", markets.add("says", market)), MORGAN, {})
    assert (raised.value.code, raised.value.retry_after) == (code, None)


async def test_an_invalid_market_address_is_a_permanent_error() -> None:
    """S4.4: no market is to blame, and no later try would help."""
    async with open_http() as http:
        with pytest.raises(Permanent, match="the address of says cannot be asked") as raised:
            await ask(http, Market("says", "http://a.example:99999/x"), MORGAN, {})
    assert raised.value.code == "BAD_ADDRESS"


async def test_a_market_that_does_not_answer_in_time_is_a_source_error(
    markets: Markets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.4: a timeout."""
    monkeypatch.setattr(asking, "TOTAL_SECONDS", 0.1)
    gate = asyncio.Event()
    async with open_http() as http:
        with pytest.raises(SourceError, match="says did not answer in time") as raised:
            await ask(http, Market("says", markets.add("says", hanging(gate, asyncio.Event()))), MORGAN, {})
    gate.set()
    assert raised.value.code == "TIMEOUT"


async def test_a_market_that_refuses_connections_is_a_source_error(markets: Markets) -> None:
    """S4.4: a connection that fails."""
    async with open_http() as http:
        with pytest.raises(SourceError, match="the connection to gone failed") as raised:
            await ask(http, Market("gone", markets.add_dead("gone")), MORGAN, {})
    assert raised.value.code == "CONNECTION"


@each(
    "answer, code",
    [
        (says(302, Location="http://elsewhere.example/search"), "HTTP_302"),
        (says(301, Location="http://[::1"), "HTTP_301"),
        (says(301), "HTTP_301"),
        (says(400), "HTTP_400"),
        (says(403), "HTTP_403"),
        (says(404), "HTTP_404"),
        (says(200, "not JSON", Content_Type="application/json"), "BAD_ANSWER"),
        (says(200, '{"listings": 7}', Content_Type="application/json"), "BAD_ANSWER"),
        (says(200, "<html>", Content_Type="text/html"), "BAD_ANSWER"),
        (large, "BAD_ANSWER"),
    ],
)
async def test_an_answer_that_would_be_the_same_next_time_is_a_permanent_error(
    markets: Markets, answer: Any, code: str
) -> None:
    """S4.3: what would be the same next time."""
    market = Says()
    market.instead = answer
    async with open_http() as http:
        with pytest.raises(Permanent) as raised:
            await ask(http, Market("says", markets.add("says", market)), MORGAN, {})
    assert raised.value.code == code
    assert "says" in str(raised.value)


async def test_a_redirect_is_followed_on_the_markets_own_host_and_nowhere_else(markets: Markets) -> None:
    """S4.3: an API that moved a path is still the same market; where another host is named, the operator decides."""
    moved, there = Says(), Says(LISTING)
    address = markets.add("moved", moved)
    moved.instead = says(301, Location=markets.add("there", there) + "/search?year=1921&denomination=Dollar")
    async with open_http() as http:
        answer = await ask(http, Market("moved", address), MORGAN, {})
        assert (len(answer.listings), dict(markets.asked)) == (1, {"moved": 1, "there": 1})
        moved.instead = says(308, Location=f"{address}/search")
        with pytest.raises(Permanent, match="moved redirects more than 3 times") as raised:
            await ask(http, Market("moved", address), MORGAN, {})
        assert (raised.value.code, markets.asked["moved"]) == ("REDIRECTS", 1 + 4)
        moved.instead = says(301, Location="https://new.example/api/search?year=1921")
        with pytest.raises(Permanent, match=r"market moved https://new\.example/api$"):
            await ask(http, Market("moved", address), MORGAN, {})


async def test_204_is_an_answer_without_listings(coins: Coins, t: Testing, market: Says) -> None:
    """A market that has nothing of a coin may say so without a body."""
    market.instead = says(204)
    await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert (job.state, job.result["listings"]) == ("succeeded", 0)


async def test_a_permanent_error_ends_the_job_and_writes_nothing(
    coins: Coins, t: Testing, markets: Markets, market: Says
) -> None:
    """S4.3: running to failed."""
    market.instead = says(200, "<html>sorry</html>", Content_Type="text/html")
    await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert (job.state, job.attempt, job.error_code) == ("dead", 1, "BAD_ANSWER")
    assert "the answer of says cannot be used: it is text/html" in str(job.error_message)
    assert markets.asked["says"] == 1
    assert await fetch(coins, "SELECT count(*) FROM coins_price_points") == [(0,)]


# --- trying again


async def test_a_passing_error_waits_for_its_backoff_and_is_tried_again(
    coins: Coins, t: Testing, markets: Markets, market: Says
) -> None:
    """S4.4, S4.5, S4.13, S4.14: base_delay_minutes × 2^retry_count; not a moment before next_retry_at."""
    market.instead = says(503)
    await coins.submit(MORGAN)
    for retry_count in range(2):
        await t.drain()
        job = await the_job(t)
        assert (job.state, job.attempt, job.error_code) == ("retryable", retry_count + 1, "HTTP_503")
        minutes = (job.run_after - t.clock.now()).total_seconds() / 60
        assert 5 * 2**retry_count / 2 <= minutes <= 5 * 2**retry_count  # jitter takes off up to half
        if retry_count == 0:
            await t.travel(minutes=minutes - 0.01)
            await t.drain()
            assert (await the_job(t)).attempt == 1
        await t.travel((await the_job(t)).run_after - t.clock.now() + timedelta(seconds=1))
    market.instead = None
    (job,) = await t.drain()
    assert (job.state, job.attempt, markets.asked["says"]) == ("succeeded", 3, 3)


@ONE_ENGINE
async def test_the_wait_is_a_day_at_most(url: str, markets: Markets, tmp_path: Path) -> None:
    """S4.13: capped at 1440 minutes."""
    clock = FakeClock()
    coins = Coins(url, clock=clock, base_delay=timedelta(hours=20), cache_file=tmp_path / "cache.db")
    market = Says()
    market.instead = says(500)
    async with coins.app:
        t = Testing(coins.app, clock)
        await coins.set_market("says", markets.add("says", market))
        await coins.submit(MORGAN)
        hours = []
        for _ in range(2):
            await t.drain()
            hours.append(((await the_job(t)).run_after - clock.now()).total_seconds() / 3600)
            await t.travel(hours=24)
    assert 10 <= hours[0] <= 20
    assert 12 <= hours[1] <= 24  # and not 20 to 40


@pytest.mark.parametrize(("engine", "given"), [("sqlite", "as a date"), ("postgres", "90")], indirect=["engine"])
async def test_retry_after_is_honoured_for_the_whole_market(
    coins: Coins, t: Testing, markets: Markets, market: Says, given: str
) -> None:
    """S4.4, S4.24: a 429 says how long everybody is to stay away."""
    began = time.monotonic()
    if given == "as a date":
        from datetime import UTC, datetime

        given = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    market.instead = says(429, Retry_After=given)
    await coins.submit(MORGAN)
    await t.drain()
    source = await coins.app.sources.get("api:says")
    assert source.paused_until is not None
    least = 89 - (time.monotonic() - began)  # a date has no fractions of a second, and time goes on until it is read
    assert least <= (source.paused_until - t.clock.now()).total_seconds() <= 90
    market.instead = None
    await coins.submit(PEACE)
    await t.drain()
    assert markets.asked["says"] == 1  # the other coin has to wait, too
    await t.travel(seconds=91)
    (job,) = await t.drain()
    assert (job.state, markets.asked["says"]) == ("succeeded", 2)


# --- rates and breakers


def coins_of(number: int) -> list[Coin]:
    return [Coin(year=1880 + n, denomination="Dollar") for n in range(number)]


@ONE_ENGINE
async def test_a_market_is_asked_as_often_as_its_rate_allows(coins: Coins, t: Testing, markets: Markets) -> None:
    """S4.24: a token bucket for each source; here of the config file, 30 a minute and 5 at once."""
    await coins.set_market("metered", markets.add("metered", Says(LISTING)))
    for coin in coins_of(8):
        await coins.submit(coin)
    await t.drain()
    assert markets.asked["metered"] == 5
    await t.travel(seconds=4)
    await t.drain()
    assert markets.asked["metered"] == 7
    assert (await coins.app.sources.get("api:metered")).rate_limit_per_minute == 30


async def test_five_failures_open_the_breaker_and_then_nobody_asks(coins: Coins, t: Testing, markets: Markets) -> None:
    """S4.25, S4.26: five in a row, five minutes; it is looked at before each attempt, so the market hears nothing."""
    market = Says()
    market.instead = says(500)
    await coins.set_market("says", markets.add("says", market))
    await coins.app.sources.set("api:says", concurrency=1)  # else some are under way when the fifth failure is known
    for coin in coins_of(7):
        await coins.submit(coin)
    await t.drain()
    assert markets.asked["says"] == 5
    source = await coins.app.sources.get("api:says")
    assert source.failure_streak == 5
    assert source.paused_until is not None
    assert (source.paused_until - t.clock.now()).total_seconds() == pytest.approx(300, abs=1)
    await t.travel(seconds=298)
    await t.drain()
    assert markets.asked["says"] == 5
    untouched = [job for job in await t.enqueued("coins.scrape") if job.attempt == 0]
    assert len(untouched) == 2

    market.instead = None
    await t.travel(seconds=3)
    await t.drain()
    assert markets.asked["says"] == 12  # one that tries it out, then all the others
    assert (await coins.app.sources.get("api:says")).failure_streak == 0
    assert {job.state for job in await t.enqueued("coins.scrape")} == {"succeeded"}


@ONE_ENGINE
async def test_one_markets_breaker_is_not_anothers(coins: Coins, t: Testing, markets: Markets) -> None:
    broken = Says()
    broken.instead = says(500)
    await coins.set_market("broken", markets.add("broken", broken))
    await coins.set_market("fine", markets.add("fine", Says(LISTING)))
    await coins.app.sources.set("api:broken", concurrency=1)
    for coin in coins_of(6):
        await coins.submit(coin)
    await t.drain()
    assert dict(markets.asked) == {"broken": 5, "fine": 6}


# --- the document's numbers


def test_the_config_has_the_documents_numbers() -> None:
    """S4.7, S4.8, S4.25: a beat every 20 s, a timeout of 300 s, a look every 60 s; five failures, five minutes."""
    settings = Coins().app.settings
    assert (settings.worker.heartbeat_seconds, settings.worker.lease_seconds, settings.worker.sweep_seconds) == (
        20, 300, 60,
    )  # fmt: skip
    assert settings.worker.queues == ("coins",)
    assert settings.sources["api"] == {"concurrency": 4, "threshold": 5, "cooldown": 300.0}
    assert settings.sources["api:metered"] == {"rate": "30/min", "burst": 5}


@ONE_ENGINE
async def test_a_worker_writes_the_configs_limits_to_the_database(coins: Coins, t: Testing) -> None:
    """S4.24, S4.27: sources.rate_limit_per_minute."""
    await t.drain()
    api = await coins.app.sources.get("api")
    assert (api.concurrency, api.policy.threshold, api.policy.cooldown) == (4, 5, 300)
    assert (await coins.app.sources.get("api:metered")).policy.rate == 30
