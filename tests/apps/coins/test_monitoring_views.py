"""What operators look at, on each engine: recent jobs, the health of markets, stuck jobs."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from apps.coins.helpers import LISTING, MORGAN, Says, fetch, hanging, says
from rowlock import FakeClock
from rowlock_apps.coins import Coins
from rowlock_apps.coins.markets import Markets


def moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


async def test_jobs_and_markets_are_shown_in_the_documents_words(url: str, markets: Markets, tmp_path: Path) -> None:
    """S4.1, S4.27, S4.29, S4.30, S4.31 on both engines."""
    clock = FakeClock()  # months before the database's own clock: what runs by it has been silent for long
    coins = Coins(url, clock=clock, cache_file=tmp_path / "cache.db")
    arrived, gate = asyncio.Event(), asyncio.Event()
    manners = {"fine": Says(LISTING), "wrong": Says(), "down": Says(), "slow": hanging(gate, arrived)}
    manners["wrong"].instead, manners["down"].instead = says(404), says(503)  # type: ignore[union-attr]
    async with coins.app:
        for name, manner in manners.items():
            await coins.set_market(name, markets.add(name, manner), f"The {name} market")
        await coins.set_market("never", "http://127.0.0.1:9/never")
        await coins.submit(MORGAN, list(manners))
        async with coins.app.worker(shutdown_timeout_seconds=0):
            ended = "SELECT count(*) FROM coins_scrape_jobs WHERE attempts = 1 AND status <> 'running'"
            async with asyncio.timeout(20):
                while await fetch(coins, ended) != [(3,)]:
                    await asyncio.sleep(0.02)
                await arrived.wait()
            jobs = await by_first(
                coins, "coins_scrape_jobs", "source_id", "intake_id", "status", "locked_by", "locked_at",
                "heartbeat_at", "completed_at", "error_message",
            )  # fmt: skip
            health = await by_first(
                coins, "coins_source_health", "id", "name", "enabled", "failure_streak", "last_success_at",
                "last_failure_at", "paused_until",
            )  # fmt: skip
            stuck = await fetch(coins, "SELECT status, locked_by, seconds_since_heartbeat FROM coins_stuck_jobs")
            gate.set()
    words = {name: row["status"] for name, row in jobs.items()}
    assert words == {"fine": "succeeded", "wrong": "failed", "down": "retryable", "slow": "running"}
    assert {row["intake_id"] for row in jobs.values()} == {1}
    assert moment(jobs["slow"]["locked_at"]) == moment(jobs["slow"]["heartbeat_at"]) == clock.now()
    assert jobs["slow"]["completed_at"] is None
    assert moment(jobs["fine"]["completed_at"]) == clock.now()
    assert "404" in jobs["wrong"]["error_message"]
    fine, down, never = health["fine"], health["down"], health["never"]
    assert (fine["name"], bool(fine["enabled"]), fine["failure_streak"]) == ("The fine market", True, 0)
    assert (moment(fine["last_success_at"]), fine["paused_until"]) == (clock.now(), None)
    assert (down["failure_streak"], moment(down["last_failure_at"])) == (1, clock.now())
    assert (bool(never["enabled"]), never["failure_streak"]) == (True, 0)
    ((status, locked_by, silent),) = stuck
    assert (status, locked_by) == ("running", jobs["slow"]["locked_by"])
    assert silent > timedelta(minutes=5).total_seconds()


async def by_first(coins: Coins, view: str, *columns: str) -> dict[str, dict[str, Any]]:
    """The rows of a view by their first column."""
    found = await fetch(coins, f"SELECT {', '.join(columns)} FROM {view}")
    return {row[0]: dict(zip(columns, row, strict=True)) for row in found}


async def test_a_paused_class_pauses_every_market_in_the_view(coins: Coins, markets: Markets) -> None:
    async with coins.app:
        for name in ("one", "two"):
            await coins.set_market(name, markets.add(name, Says()))
        await coins.app.sources.pause("api", 600)
        await coins.app.sources.pause("api:two", 60)
        rows = await fetch(coins, "SELECT id, paused_until FROM coins_source_health ORDER BY id")
        await coins.app.sources.resume("api")
        t = "rowlock_" if (await coins.app.store()).engine == "sqlite" else "rowlock."
        async with coins.app.transaction() as tx:  # what the breaker of a source named like its class writes
            await tx.execute(
                f"UPDATE {t}sources SET paused_until = (SELECT max(paused_until) FROM {t}sources) WHERE name = 'api'"
            )
        alone = await fetch(coins, "SELECT paused_until IS NULL FROM coins_source_health WHERE id = 'one'")
    assert [name for name, _ in rows] == ["one", "two"]
    assert moment(rows[0][1]) == moment(rows[1][1])
    assert [bool(row[0]) for row in alone] == [True]
