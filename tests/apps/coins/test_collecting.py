"""From a coin to its prices and its valuation, on both engines."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from apps.coins.helpers import LISTING, MORGAN, PEACE, Says, fetch, hanging, listing, reclaim, says
from apps.engines import ONE_ENGINE
from rowlock import ConfigError, Context, InvalidArguments
from rowlock.testing import Testing
from rowlock_apps.coins import Coins
from rowlock_apps.coins.answer_cache import AnswerCache
from rowlock_apps.coins.markets import Markets, steady
from support.each import each

POINTS = "SELECT dedupe_key, title, price_cents, match_strength FROM coins_price_points ORDER BY dedupe_key"
VALUATIONS = "SELECT intake_id, value_cents, points FROM coins_valuations ORDER BY intake_id"


@pytest.fixture
async def market(coins: Coins, t: Testing, markets: Markets) -> Says:
    """One market, `says`, that says what the test wants."""
    says = Says()
    await coins.set_market("says", markets.add("says", says))
    return says


async def test_a_coin_gets_its_prices_and_a_valuation(coins: Coins, t: Testing, markets: Markets) -> None:
    """S4.3: running to succeeded."""
    await coins.set_market("steady", markets.add("steady", steady()))
    submission = await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert (job.state, job.attempt) == ("succeeded", 1)
    assert job.result == {"listings": 6, "skipped": 0, "written": 6, "kept": 0, "cached": False}
    (worth,) = await coins.report()
    assert (worth.intake_id, worth.coin, worth.points, worth.basis) == (submission.intake_id, MORGAN, 6, "sold")
    assert worth.cents
    assert worth.low < worth.cents < worth.high  # type: ignore[operator]


@ONE_ENGINE
async def test_one_job_for_each_enabled_market(coins: Coins, t: Testing, markets: Markets) -> None:
    for name in ("a", "b", "c"):
        await coins.set_market(name, markets.add(name, steady()))
    await coins.app.sources.pause("api:b")
    submission = await coins.submit(MORGAN)
    assert sorted(job.source for job in submission.jobs) == ["api:a", "api:c"]
    assert len(await t.drain()) == 2
    assert dict(markets.asked) == {"a": 1, "c": 1}


async def test_a_stronger_match_replaces_a_price_point_and_no_other_does(
    coins: Coins, t: Testing, market: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.17: unique by intake, source and key; on conflict only a higher match_strength updates."""
    monkeypatch.setenv("CACHE_ENABLED", "false")
    said = [
        ("1921 Morgan Dollar", "40.00", 1, (4000, 75)),
        ("1921 Morgan Dollar", "50.00", 0, (4000, 75)),  # as strong: what is there stays
        ("Morgan Dollar", "60.00", 0, (4000, 75)),  # weaker
        ("1921-D Morgan Dollar", "70.00", 1, (7000, 100)),  # stronger
    ]
    for title, price, written, stored in said:
        market.rows = [listing(title=title, price=price)]
        await coins.submit(MORGAN)
        (job,) = await t.drain()
        assert job.result is not None
        assert (job.result["written"], job.result["kept"]) == (written, 1 - written)
        ((key, _, *found),) = await fetch(coins, POINTS)
        assert (key, tuple(found)) == ("ext_1", stored)
    assert await fetch(coins, VALUATIONS) == [(1, 7000, 1)]


async def test_the_same_price_twice_in_one_answer_is_one_point(coins: Coins, t: Testing, market: Says) -> None:
    """S4.22: also with keys that are hashes."""
    same = listing(external_id=None)
    market.rows = [same, same | {"url": same["url"] + "?page=2"}, listing(title="1921 Morgan Dollar"), LISTING]
    await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert job.result is not None
    assert (job.result["written"], job.result["kept"]) == (3, 1)
    stored = await fetch(coins, POINTS)
    assert [(key[:4], strength) for key, _, _, strength in stored] == [("ext_", 100), ("hash", 100)]


@ONE_ENGINE
async def test_each_coin_has_its_own_price_points_of_each_market(
    coins: Coins, t: Testing, markets: Markets, market: Says
) -> None:
    await coins.set_market("other", markets.add("other", Says(LISTING)))
    await coins.submit(MORGAN)
    await coins.submit(PEACE)
    await t.drain()
    assert len(await fetch(coins, POINTS)) == 4


async def test_an_intake_has_one_valuation_however_often_it_is_valued(
    coins: Coins, t: Testing, market: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.18: UNIQUE(intake_id), upsert."""
    monkeypatch.setenv("CACHE_ENABLED", "false")
    for number in (1, 2):
        market.rows = [listing(external_id=str(number), price=100 * number)]
        await coins.submit(MORGAN)
        await t.drain()
        assert await fetch(coins, VALUATIONS) == [(1, 10_000 if number == 1 else 15_000, number)]


async def test_a_coin_handed_in_twice_is_one_intake(coins: Coins, t: Testing, market: Says) -> None:
    first, second = await coins.submit(MORGAN), await coins.submit(MORGAN)
    assert first.intake_id == second.intake_id
    assert (len(first.jobs), len(second.jobs)) == (1, 0)  # the first is still under way
    assert len(await t.drain()) == 1
    third = await coins.submit(MORGAN)
    assert (third.intake_id, len(third.jobs)) == (first.intake_id, 1)  # now it is done, and prices may be new
    await t.drain()
    assert len(await fetch(coins, POINTS)) == 1
    assert len(await fetch(coins, VALUATIONS)) == 1


@ONE_ENGINE
async def test_prices_in_another_currency_are_kept_but_not_counted(coins: Coins, t: Testing, market: Says) -> None:
    market.rows = [LISTING, listing(external_id="2", currency="EUR", price="1000")]
    await coins.submit(MORGAN)
    await t.drain()
    assert len(await fetch(coins, POINTS)) == 2
    assert await fetch(coins, VALUATIONS) == [(1, 4150, 1)]


@ONE_ENGINE
async def test_a_coin_for_which_nothing_fits_has_no_valuation(coins: Coins, t: Testing, market: Says) -> None:
    market.rows = [listing(title="a lot of old silver")]
    await coins.submit(MORGAN)
    await t.drain()
    (worth,) = await coins.report()
    assert (worth.points, worth.cents, worth.basis) == (1, None, None)


@ONE_ENGINE
async def test_bad_listings_are_left_out_and_counted(coins: Coins, t: Testing, market: Says) -> None:
    market.rows = [listing(external_id="2", price=-5), LISTING, listing(external_id="3", title="a\x00b")]
    await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert job.result == {"listings": 1, "skipped": 2, "written": 1, "kept": 0, "cached": False}
    assert [row[0] for row in await fetch(coins, POINTS)] == ["ext_1"]


async def test_if_the_last_statement_fails_nothing_is_written(coins: Coins, t: Testing, market: Says) -> None:
    """A valuation that the table refuses takes the points of its job along."""
    await coins.submit(MORGAN)
    refusal = "CREATE TRIGGER no BEFORE INSERT ON coins_valuations BEGIN SELECT RAISE(ABORT, 'full'); END"
    if coins.app.settings.database.startswith("postgres"):
        refusal = "ALTER TABLE coins_valuations ADD CONSTRAINT no CHECK (false)"
    async with coins.app.transaction() as tx:
        await tx.execute(refusal)
    await t.drain()
    assert await fetch(coins, POINTS) == []
    async with coins.app.transaction() as tx:
        drop = "DROP TRIGGER no" if "TRIGGER" in refusal else "ALTER TABLE coins_valuations DROP CONSTRAINT no"
        await tx.execute(drop)
    await t.travel(minutes=6)
    (job,) = await t.drain()
    assert (job.state, job.attempt) == ("succeeded", 2)
    assert len(await fetch(coins, POINTS)) == len(await fetch(coins, VALUATIONS)) == 1


async def test_a_worker_that_was_given_up_writes_nothing(coins: Coins, t: Testing, markets: Markets) -> None:
    """S4.12: it was silent for longer than JOB_LOCK_TIMEOUT_SECONDS; when it wakes up, the job is no longer its own."""
    gate, arrived = asyncio.Event(), asyncio.Event()
    await coins.set_market("slow", markets.add("slow", hanging(gate, arrived)))
    await coins.submit(MORGAN)
    async with coins.app.worker(shutdown_timeout_seconds=5):
        await asyncio.wait_for(arrived.wait(), 10)
        await coins.app.sources.pause("api:slow")  # so that nobody takes the job over
        await t.travel(seconds=301)
        await reclaim(coins)
        gate.set()
    assert await fetch(coins, POINTS) == await fetch(coins, VALUATIONS) == []
    ((state, losses),) = [(job.state, job.losses) for job in await t.enqueued("coins.scrape")]
    assert (state, losses) == ("retryable", 1)


# --- the cache


@ONE_ENGINE
async def test_an_answer_is_good_for_an_hour(coins: Coins, t: Testing, markets: Markets, market: Says) -> None:
    """S4.28: the cache is asked before the market; TTL 3600 s."""
    cached = []
    for minutes in (0, 59, 2):
        await t.travel(minutes=minutes)
        await coins.submit(MORGAN)
        (job,) = await t.drain()
        assert job.result is not None
        cached.append(job.result["cached"])
    assert cached == [False, True, False]
    assert markets.asked["says"] == 2
    await coins.submit(PEACE)
    await t.drain()
    assert markets.asked["says"] == 3  # another coin has another key


@ONE_ENGINE
@pytest.mark.parametrize(("name", "value", "asked"), [("CACHE_ENABLED", "false", 2), ("CACHE_TTL_SECONDS", "60", 2)])
async def test_the_cache_can_be_shortened_and_turned_off(
    coins: Coins, t: Testing, markets: Markets, market: Says, monkeypatch: pytest.MonkeyPatch, name: str, value: str,
    asked: int,
) -> None:  # fmt: skip
    """S4.28: CACHE_TTL_SECONDS, CACHE_ENABLED=false."""
    monkeypatch.setenv(name, value)
    for _ in range(2):
        await coins.submit(MORGAN)
        await t.drain()
        await t.travel(minutes=2)
    assert markets.asked["says"] == asked


@ONE_ENGINE
async def test_a_wrong_variable_stops_the_worker_with_its_name(
    coins: Coins, t: Testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_TTL_SECONDS", "soon")
    with pytest.raises(ConfigError, match="CACHE_TTL_SECONDS = 'soon'"):
        await t.drain()


@ONE_ENGINE
async def test_the_cache_is_where_the_environment_says(
    url: str, t: Testing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.28: a SQLite file, which a Docker volume can hold."""
    monkeypatch.setenv("CACHE_FILE", str(tmp_path / "volume" / "cache.db"))
    other = Coins(url)

    @other.app.task(queue="coins")
    async def note(ctx: Context) -> None:
        await ctx.resources["cache"].put("key", 1)

    async with other.app, other.app.worker(queues=["coins"]):
        await (await note.enqueue()).wait(timeout=20)
    assert os.listdir(tmp_path / "volume")[0].startswith("cache.db")


@ONE_ENGINE
async def test_a_failed_answer_is_not_cached(coins: Coins, t: Testing, markets: Markets, market: Says) -> None:
    market.instead = says(200, "<html>", Content_Type="text/html")
    await coins.submit(MORGAN)
    await t.drain()
    market.instead = None
    await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert (job.state, markets.asked["says"]) == ("succeeded", 2)


@ONE_ENGINE
async def test_what_another_version_has_cached_is_asked_again(
    coins: Coins, t: Testing, markets: Markets, market: Says, tmp_path: Path
) -> None:
    cache = AnswerCache(tmp_path / "cache.db", clock=lambda: t.clock.now().timestamp())
    await cache.put(MORGAN.cache_key("says"), {"listings": [{"old": "form"}]})
    await cache.close()
    await coins.submit(MORGAN)
    (job,) = await t.drain()
    assert (job.state, markets.asked["says"]) == ("succeeded", 1)


@ONE_ENGINE
async def test_query_params_reach_the_market_and_pass_the_cache_by(
    coins: Coins, t: Testing, markets: Markets, market: Says
) -> None:
    asked: list[dict[str, str]] = []

    async def note(query: Any) -> Any:
        asked.append(dict(query))
        return await market(query)

    markets.add("says", note)
    intake = (await coins.submit(MORGAN)).intake_id
    await t.drain()
    for _ in range(2):
        await coins.scrape.enqueue(intake_id=intake, source_id="says", query_params={"grade": "MS65", "year": 1800})
    await t.drain()
    description = {key: str(value) for key, value in MORGAN.model_dump().items()} | {"market": "says"}
    assert asked == [description, description | {"grade": "MS65"}, description | {"grade": "MS65"}]


# --- bad input


@ONE_ENGINE
async def test_unknown_intakes_and_sources_are_refused_when_asked_for(coins: Coins, t: Testing, market: Says) -> None:
    for unknown in (99, 0, 2**70, "1", 1.0, True, None):
        with pytest.raises(InvalidArguments, match=f"no intake {unknown!r}"):
            await coins.collect(unknown)  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="no market 'nowhere'; there are: says"):
        await coins.submit(MORGAN, ["says", "nowhere"])
    with pytest.raises(InvalidArguments, match="no market is named"):
        await coins.submit(MORGAN, [])
    for intake in (0, 2**63):
        with pytest.raises(InvalidArguments, match="intake_id"):
            await coins.scrape.enqueue(intake_id=intake, source_id="says")
    with pytest.raises(InvalidArguments, match="a source is named like"):
        await coins.scrape.enqueue(intake_id=1, source_id="")
    assert await coins.report() == []  # nothing of it was kept
    assert await t.enqueued() == []


@ONE_ENGINE
async def test_a_scrape_job_for_an_unknown_intake_or_source_is_dead_at_once(
    coins: Coins, t: Testing, markets: Markets, market: Says
) -> None:
    await coins.submit(MORGAN)
    nobody = await coins.scrape.enqueue(intake_id=99, source_id="says")
    nowhere = await coins.scrape.enqueue(intake_id=1, source_id="nowhere")
    jobs = {job.id: (job.state, job.attempt, job.error_code) for job in await t.drain()}
    assert jobs[nobody.id] == ("dead", 1, "UNKNOWN_INTAKE")
    assert jobs[nowhere.id] == ("dead", 1, "UNKNOWN_SOURCE")
    assert markets.asked.total() == 1


async def test_no_job_is_made_for_markets_that_are_disabled_together(coins: Coins, t: Testing, market: Says) -> None:
    """They would wait for nobody knows how long, and ask all at once then."""
    await coins.app.sources.pause("api")
    try:
        with pytest.raises(InvalidArguments, match=r"no market is enabled; .* rowlock sources resume api"):
            await coins.submit(MORGAN)
        assert await coins.report() == []
    finally:
        await coins.app.sources.resume("api")
    assert len((await coins.submit(MORGAN)).jobs) == 1


@ONE_ENGINE
async def test_without_a_market_no_coin_is_taken_in(coins: Coins, t: Testing) -> None:
    with pytest.raises(InvalidArguments, match="no market is enabled; add one with"):
        await coins.submit(MORGAN)
    assert await coins.report() == []


@each(
    "market, address",
    [
        ("", "https://a.example"),
        ("Big Auction", "https://a.example"),
        ("a" * 51, "https://a.example"),
        ("a", "ftp://a.example"),
        ("a", "https://"),
        ("a", "https://a.example/?q=1"),
        ("a", "nonsense"),
        ("a", "http://a.example:99999/x"),
        ("a", "http://a.example:0/x"),
        ("a", "http://[::1"),
        ("a", "http://:80/x"),
        ("a", "http://a.example/\x00"),
        ("a", "http://a.example/\ud800"),
        (5, "https://a.example"),
        ("a", None),
    ],
)
async def test_a_market_with_an_invalid_id_or_address_is_refused(market: str, address: str) -> None:
    with pytest.raises(InvalidArguments, match="a market's"):
        await Coins().set_market(market, address)


@each("name", ["", "a\x00b", "\ud800", "x" * 201, 5])
async def test_a_markets_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(InvalidArguments, match="a market's name has"):
        await Coins().set_market("a", "https://a.example", name)
