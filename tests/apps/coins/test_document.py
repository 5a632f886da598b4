"""On PostgreSQL the document's own SQL runs as written, over views with its names and words."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from apps.coins import document
from apps.coins.helpers import LISTING, MORGAN, Says, hanging, reclaim, says, until
from rowlock import FakeClock
from rowlock_apps.coins import Coins
from rowlock_apps.coins.markets import Markets


@pytest.fixture
def engine() -> str:
    return "postgres"


@pytest.fixture
def sql(url: str) -> Iterator[Any]:
    """Runs a statement as a session of the document would."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("SET search_path = coins, public")

        def run(text: str, *values: Any) -> list[dict[str, Any]]:
            cursor = connection.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
async def ready(coins: Coins, markets: Markets, url: str) -> Any:
    """One coin and one market, without jobs."""
    async with coins.app:
        await coins.set_market("says", markets.add("says", Says(LISTING)), "The Market")
        submission = await coins.submit(MORGAN)
        await submission.batch.cancel()
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM rowlock.jobs_finished")
        yield


@pytest.mark.usefixtures("ready")
async def test_the_insert_of_twenty_jobs_makes_twenty_jobs_like_pythons(coins: Coins, sql: Any) -> None:
    """S4.20: scrape jobs made in SQL are as good as those made in Python, in every option."""
    sql(document.CREATE_20_JOBS)
    found = sql("SELECT * FROM scrape_jobs")
    assert len(found) == 20
    assert {(row["intake_id"], row["source_id"], row["status"], row["attempts"]) for row in found} == {
        (1, "says", "pending", 0)
    }
    python = await coins.scrape.enqueue(intake_id=1, source_id="says")
    columns = (
        "task, queue, args::jsonb, source, priority, max_attempts, backoff::jsonb, timeout_seconds, ready, on_lost"
    )
    rows = sql(f"SELECT {columns}, id = %s AS python FROM rowlock.jobs_live", python.id)
    (ours,) = [row for row in rows if row.pop("python")]
    assert [row for row in rows if row != ours] == []


@pytest.mark.usefixtures("ready")
def test_a_new_job_may_have_query_params_and_gives_its_id(sql: Any) -> None:
    (row,) = sql(
        "INSERT INTO scrape_jobs (intake_id, source_id, query_params) VALUES (1, 'says', '{\"grade\": \"MS65\"}') "
        "RETURNING id, status"
    )
    (job,) = sql("SELECT id, query_params FROM scrape_jobs")
    assert job == {"id": row["id"], "query_params": {"grade": "MS65"}}
    assert row["status"] == "pending"


BAD_JOBS = [
    ("1, 'says', '{}', 'running'", "a new job is pending, not 'running'"),
    ("1, 'says', '{}', 'succeeded'", "a new job is pending, not 'succeeded'"),
    ("99, 'says', '{}', 'pending'", "no intake 99; see SELECT id FROM coins.coin_intakes"),
    ("NULL, 'says', '{}', 'pending'", "no intake NULL"),
    ("1, 'nowhere', '{}', 'pending'", "no source 'nowhere'; see SELECT id FROM coins.sources"),
    ("1, NULL, '{}', 'pending'", "no source NULL"),
    ("1, 'says', '[]', 'pending'", "query_params must be a JSON object"),
    ("1, 'says', '{\"a\": [1]}', 'pending'", "query_params must have texts and numbers as values"),
]
BAD_WRITES = [
    ("UPDATE scrape_jobs SET status = 'succeeded'", "UPDATE is refused; use: rowlock jobs cancel"),
    ("DELETE FROM scrape_jobs", "DELETE is refused; use: rowlock jobs cancel"),
    (
        "INSERT INTO scrape_jobs (intake_id, source_id, locked_by) VALUES (1, 'says', 'me')",
        "give intake_id, source",
    ),
    ("UPDATE coin_intakes SET year = 1", "UPDATE is refused; use: python -m rowlock_apps.coins submit"),
    ("INSERT INTO coin_intakes (year, denomination) VALUES (1921, 'Dollar')", "INSERT is refused"),
    ("UPDATE sources SET paused_until = NULL", "UPDATE is refused; use: .* rowlock sources"),
    ("DELETE FROM sources", "DELETE is refused"),
    (
        "INSERT INTO price_points (intake_id) VALUES (1)",
        "INSERT is refused; price points are written by scrape jobs",
    ),
    ("INSERT INTO valuations (intake_id) VALUES (1)", "INSERT is refused; valuations are written by scrape jobs"),
    *(
        (f"DELETE FROM {view} WHERE false", "DELETE is refused")
        for view in ("scrape_jobs", "coin_intakes", "sources", "price_points", "valuations")
    ),
]


@pytest.mark.usefixtures("ready")
def test_inserting_an_invalid_job_is_refused_with_the_reason(sql: Any) -> None:
    """One test, not many: setting up takes longer than all of them."""
    for values, message in BAD_JOBS:
        with pytest.raises(psycopg.Error, match=message):
            sql(f"INSERT INTO scrape_jobs (intake_id, source_id, query_params, status) VALUES ({values})")
    assert sql("SELECT 1 FROM scrape_jobs") == []


@pytest.mark.usefixtures("ready")
def test_a_scrape_job_with_a_bad_intake_id_does_not_break_the_view(sql: Any) -> None:
    """Anybody may enqueue anything; the view must answer all the same."""
    sql("INSERT INTO scrape_jobs (intake_id, source_id) VALUES (1, 'says')")
    for odd in ("abc", "1" * 30):
        sql("SELECT rowlock.enqueue(task => 'coins.scrape', args => jsonb_build_object('intake_id', %s::text))", odd)
    assert sorted(str(row["intake_id"]) for row in sql("SELECT intake_id FROM scrape_jobs")) == ["1", "None", "None"]


@pytest.mark.usefixtures("ready")
def test_every_other_write_is_refused_with_what_to_do(sql: Any) -> None:
    sql("INSERT INTO scrape_jobs (intake_id, source_id) VALUES (1, 'says')")
    for statement, message in BAD_WRITES:
        with pytest.raises(psycopg.Error, match=message):
            sql(statement)
    assert len(sql("SELECT 1 FROM scrape_jobs WHERE status = 'pending'")) == 1


async def test_the_words_of_the_document_for_every_state(url: str, markets: Markets, sql: Any, tmp_path: Path) -> None:
    """S4.1, S4.27, S4.29, S4.30: pending, running, retryable, succeeded, failed; recent jobs and source health."""
    clock = FakeClock()
    coins = Coins(url, clock=clock, cache_file=tmp_path / "cache.db")
    arrived, gate = asyncio.Event(), asyncio.Event()
    manners = {"fine": Says(LISTING), "wrong": Says(), "down": Says(), "slow": hanging(gate, arrived)}
    manners["wrong"].instead, manners["down"].instead = says(404), says(503)  # type: ignore[union-attr]
    async with coins.app:
        for name, manner in manners.items():
            await coins.set_market(name, markets.add(name, manner), f"The {name} market")
        await coins.set_market("never", "http://127.0.0.1:9/never")
        await coins.app.sources.set("api:fine", rate="30/min")
        await coins.submit(MORGAN, list(manners))
        async with coins.app.worker(shutdown_timeout_seconds=0):
            await until(lambda: len(sql("SELECT 1 FROM scrape_jobs WHERE attempts = 1 AND status <> 'running'")) == 3,
                        "three of four jobs")  # fmt: skip
            await asyncio.wait_for(arrived.wait(), 10)
            sql("INSERT INTO scrape_jobs (intake_id, source_id) VALUES (1, 'never')")
            jobs = {row["source_id"]: row for row in sql("SELECT * FROM scrape_jobs") if row["source_id"] != "never"}
            recent = sql(document.RECENT_JOBS)
            health = {row["name"]: row for row in sql(document.SOURCE_HEALTH)}
            sources = {row["id"]: row for row in sql("SELECT * FROM sources")}
            stuck = sql(document.STUCK_JOBS)
            gate.set()
    words = {name: row["status"] for name, row in jobs.items()}
    assert words == {"fine": "succeeded", "wrong": "failed", "down": "retryable", "slow": "running"}
    assert recent[0]["status"] == "pending"
    assert len(recent) == 5
    assert "404" in jobs["wrong"]["error_message"]
    assert jobs["wrong"]["completed_at"] == jobs["fine"]["completed_at"] == clock.now()
    assert clock.now() < jobs["down"]["next_retry_at"] <= clock.now() + timedelta(minutes=5)
    assert jobs["slow"]["locked_by"]
    assert jobs["slow"]["locked_at"] == jobs["slow"]["heartbeat_at"] == clock.now()
    assert list(health) == sorted(health)
    fine, down = health["The fine market"], health["The down market"]
    assert (fine["enabled"], fine["failure_streak"], fine["last_success_at"]) == (True, 0, clock.now())
    assert (down["failure_streak"], down["last_failure_at"], down["paused_until"]) == (1, clock.now(), None)
    assert (sources["fine"]["rate_limit_per_minute"], sources["never"]["failure_streak"]) == (30, 0)
    assert [row["id"] for row in stuck] == [jobs["slow"]["id"]]  # the test's clock stands months before NOW()


async def test_a_job_without_a_heartbeat_is_shown_as_stuck_and_then_taken_back(
    url: str, markets: Markets, sql: Any, tmp_path: Path
) -> None:
    """S4.6, S4.9, S4.31: both forms of the query; when the job is taken back it is pending, and attempts grow."""
    coins = Coins(url, cache_file=tmp_path / "cache.db")
    arrived, gate = asyncio.Event(), asyncio.Event()
    async with coins.app:
        await coins.set_market("slow", markets.add("slow", hanging(gate, arrived)))
        await coins.submit(MORGAN)
        async with coins.app.worker(shutdown_timeout_seconds=0):
            await asyncio.wait_for(arrived.wait(), 10)
            assert sql(document.STUCK_BY_HAND) == sql(document.STUCK_JOBS) == []
            # As if the worker had been dead for six minutes.
            sql(
                "UPDATE rowlock.jobs_live SET heartbeat_at = heartbeat_at - interval '6 min',"
                " lease_expires_at = now() - interval '1 min'"
            )
            for query in (document.STUCK_BY_HAND, document.STUCK_JOBS):
                (row,) = sql(query)
                assert row["status"] == "running"
                assert row["locked_by"]
                assert timedelta(minutes=6) <= row["time_since_heartbeat"] < timedelta(minutes=7)
            await reclaim(coins)
            (row,) = sql("SELECT status, attempts, locked_by FROM scrape_jobs")
            assert row == {"status": "pending", "attempts": 1, "locked_by": None}
            gate.set()
