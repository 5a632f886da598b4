"""Real worker processes: two that share the work, and one that is killed."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.coins import document
from apps.coins.helpers import LISTING, MORGAN, fetch, hanging, listing, until
from apps.engines import ONE_ENGINE
from cli.command import Background, Cli
from rowlock.core.job import Job
from rowlock_apps.coins import Coins
from rowlock_apps.coins.markets import Behaviour, Markets, Query, listed
from rowlock_apps.coins.records import points_of
from rowlock_apps.coins.valuation import value

QUICK = ("--lease-seconds", "1", "--heartbeat-seconds", "0.3", "--sweep-seconds", "0.3")


class Crew:
    """Worker processes by the names that WORKER_ID gives them."""

    def __init__(self, folder: Path, url: str) -> None:
        self._cli, self._url = Cli(folder, None), url

    def start(self, name: str, *options: str) -> Background:
        words = ("worker", "--app", "rowlock_apps.coins:app", "--database", self._url, *options)
        return self._cli.start(*words, WORKER_ID=name, CACHE_ENABLED="false")

    def close(self) -> None:
        self._cli.close()


@pytest.fixture
def crew(url: str, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path, url)
    yield crew
    crew.close()


async def all_done(coins: Coins, number: int) -> list[Job]:
    """The jobs, once so many are final."""

    async def look() -> list[Job]:
        return [job.record for job in await coins.app.jobs(limit=500) if job.record.final]

    for _ in range(1000):
        if len(found := await look()) >= number:
            return found
        await asyncio.sleep(0.03)
    raise AssertionError([repr(job) for job in await coins.app.jobs()])


def together(number: int, then: Behaviour) -> Behaviour:
    """A market that lets nobody go before so many have come."""
    here, enough = 0, asyncio.Event()

    async def answer(query: Query) -> Any:
        nonlocal here
        here += 1
        if here >= number:
            enough.set()
        await asyncio.wait_for(enough.wait(), 20)
        return await then(query)

    return answer


async def says_its_price(query: Query) -> Any:
    prices = {"cheap": 100, "dear": 300}
    return listed([listing(price=prices.get(query["market"], 41.5))])


def waiting_for_locks(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    assert row
    return int(row[0])


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_twenty_jobs_and_two_workers(coins: Coins, url: str, markets: Markets, crew: Crew) -> None:
    """S4.12, S4.19–S4.22: each job once, by two workers named worker-1 and worker-2, and no duplicate price points."""
    async with coins.app:
        # Two slots each: four can only come together if both workers have jobs.
        await coins.set_market("steady", markets.add("steady", together(4, says_its_price)))
        await (await coins.submit(MORGAN)).batch.cancel()
        workers = [crew.start(name, "--pool-size", "2") for name in ("worker-1", "worker-2")]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET search_path = coins, public")
            connection.execute(document.CREATE_20_JOBS)
            jobs = [job for job in await all_done(coins, 21) if job.state != "cancelled"]
            counts = connection.execute(document.PROCESSED_ONCE).fetchall()
            assert connection.execute(document.NO_DUPLICATES).fetchall() == []
        assert [worker.stop() for worker in workers] == [0, 0]
        assert [(job.state, job.attempt) for job in jobs] == [("succeeded", 1)] * 20
        by_worker = {worker[:9]: count for status, worker, count in counts if status == "succeeded"}
        assert by_worker.keys() == {"worker-1-", "worker-2-"}
        assert sum(by_worker.values()) == 20
        assert markets.asked["steady"] == 20
        assert await fetch(coins, "SELECT dedupe_key FROM coins_price_points") == [("ext_1",)]
        assert await fetch(coins, "SELECT points FROM coins_valuations") == [(1,)]


@ONE_ENGINE
async def test_twenty_jobs_and_a_worker_that_dies(coins: Coins, markets: Markets, crew: Crew) -> None:
    """S4.6, S4.9, S4.11, S4.12, S4.23: killed while it waits for a market; another does its jobs, too, each once."""
    arrived, killed = asyncio.Event(), asyncio.Event()
    async with coins.app:
        await coins.set_market("slow", markets.add("slow", hanging(killed, arrived)))
        await (await coins.submit(MORGAN)).batch.cancel()
        await coins.scrape.enqueue_many([{"intake_id": 1, "source_id": "slow"}] * 20)
        victim = crew.start("worker-1", *QUICK, "--pool-size", "1")
        await asyncio.wait_for(arrived.wait(), 30)
        victim.process.send_signal(signal.SIGKILL)
        killed.set()
        heir = crew.start("worker-2", *QUICK)
        jobs = [job for job in await all_done(coins, 21) if job.state != "cancelled"]
        assert sorted((job.state, job.attempt, job.losses) for job in jobs) == [
            *[("succeeded", 1, 0)] * 19, ("succeeded", 2, 1),
        ]  # fmt: skip
        assert {str(job.locked_by)[:9] for job in jobs} == {"worker-2-"}
        assert "worker-1-" in heir.log  # who held it before
        assert await fetch(coins, "SELECT dedupe_key FROM coins_price_points") == [("ext_1",)]
        assert await fetch(coins, "SELECT value_cents, points FROM coins_valuations") == [(4150, 1)]
        assert heir.stop() == 0
    assert markets.asked["slow"] == 21


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_worker_that_dies_in_its_transaction_leaves_nothing_half_written(
    coins: Coins, url: str, markets: Markets, crew: Crew
) -> None:
    """S4.6, S4.9, S4.11, S4.23: killed between its price points and its valuation."""
    async with coins.app:
        await coins.set_market("steady", markets.add("steady", says_its_price))
        await coins.submit(MORGAN)
        with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
            watcher.execute("INSERT INTO coins_valuations VALUES (1, 7, 7, 7, 'USD', 'sold', 1)")
            holder.execute("SELECT 1 FROM coins_valuations FOR UPDATE")
            victim = crew.start("worker-1", *QUICK)
            await until(lambda: waiting_for_locks(watcher), "the worker at the valuation", 30)
            victim.process.send_signal(signal.SIGKILL)
            holder.rollback()
            await until(lambda: not waiting_for_locks(watcher), "the end of its transaction")
        assert await fetch(coins, "SELECT count(*) FROM coins_price_points") == [(0,)]
        assert await fetch(coins, "SELECT value_cents FROM coins_valuations") == [(7,)]
        heir = crew.start("worker-2", *QUICK)
        (job,) = await all_done(coins, 1)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 2, 1)
        assert "worker-1-" in heir.log  # who held it before
        assert await fetch(coins, "SELECT dedupe_key FROM coins_price_points") == [("ext_1",)]
        assert await fetch(coins, "SELECT value_cents, points FROM coins_valuations") == [(4150, 1)]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_two_workers_that_finish_at_the_same_moment_value_what_both_have_found(
    coins: Coins, url: str, markets: Markets, tmp_path: Path
) -> None:
    """S4.18: each would overwrite the other's valuation with its own half of the truth."""
    other = Coins(url, cache_file=tmp_path / "cache.db")
    market = together(2, says_its_price)
    async with coins.app, other.app:
        for name in ("cheap", "dear"):
            await coins.set_market(name, markets.add(name, market))
        submission = await coins.submit(MORGAN)
        with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
            watcher.execute("INSERT INTO coins_valuations VALUES (1, 7, 7, 7, 'USD', 'sold', 1)")
            holder.execute("SELECT 1 FROM coins_valuations FOR UPDATE")  # nobody gets past this
            async with coins.app.worker(pool_size=1), other.app.worker(pool_size=1):
                await until(lambda: waiting_for_locks(watcher) == 2, "both jobs in their transactions")
                holder.rollback()
                assert (await submission.batch.wait(20)).state == "succeeded"
        assert await fetch(coins, "SELECT value_cents, points FROM coins_valuations") == [(20_000, 2)]
        async with coins.app.transaction() as tx:
            found = value(await points_of(tx, 1))
    assert found is not None
    assert (found.cents, found.points) == (20_000, 2)
    assert LISTING["external_id"] == "1"  # both markets call it so, and each has a point of its own
