"""The views for people at a database prompt and for autoscalers: what they show, and that they read few rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import psycopg
import pytest

from rowlock.core.outcome import Failed
from rowlock.core.times import FakeClock
from rowlock.store import queues
from rowlock.store.sources import sources
from support.rigs.rig import Rig, moment

NAMES = ("recent_jobs", "source_health", "stuck_jobs", "backlog")


@pytest.fixture
def clock() -> FakeClock:
    """The present: views ask the database for the time, and tests write rows by this clock."""
    return FakeClock(datetime.now(UTC))


async def view(rig: Rig, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return await rig.fetch(f"SELECT {columns} FROM {{t}}{name}")


async def runnable(rig: Rig, queue: str = "default") -> int:
    found = await rig.fetch("SELECT runnable FROM {t}backlog WHERE queue = $1", queue)
    return int(found[0][0]) if found else 0


async def test_recent_jobs_are_the_newest_twenty_of_all_states(rig: Rig) -> None:
    for _ in range(3):
        rig.clock.move(0.001)
        await rig.succeed(await rig.running())
    rig.clock.move(0.001)
    dead = await rig.running(max_attempts=1)
    await rig.settle(dead, Failed("HTTP_404", "no such page"))
    await rig.enqueue_many(15, task="old")
    rig.clock.move(0.001)
    new = await rig.enqueue_many(4)
    rig.clock.move(0.001)
    held = await rig.running(task="held", worker="w-7")
    found = await view(rig, "recent_jobs", "CAST(id AS text), state, locked_by, finished_at, error_message")
    assert [row[0] for row in found[:5]] == [held.id, *reversed(new)]
    assert len(found) == 20
    assert found[0][1:] == ("running", "w-7", None, None)
    assert dead.id not in [row[0] for row in found]  # fifteen, four and one are newer
    await rig.cancel(*new)
    assert {row[1] for row in await view(rig, "recent_jobs", "id, state")} == {"running", "cancelled", "queued"}


async def test_a_recent_job_that_died_shows_its_error_and_its_end(rig: Rig) -> None:
    dead = await rig.running(max_attempts=1, worker="w-7")
    await rig.settle(dead, Failed("HTTP_404", "no such page"))
    ((state, worker, finished, error),) = await view(rig, "recent_jobs", "state, locked_by, finished_at, error_message")
    assert (state, worker, error) == ("dead", "w-7", "no such page")
    assert moment(finished) is not None


async def test_source_health_names_every_source_with_its_state(rig: Rig) -> None:
    await rig.store.run(sources.set_policy("api:a", {"concurrency": 1}))
    await rig.store.run(sources.pause("api:b", 600))
    await rig.store.run(sources.pause("api:c", None))
    await rig.fetch(
        "INSERT INTO {t}sources (name, failure_streak, last_error, opened_at, paused_until)"
        " SELECT 'api:d', 7, 'no route', paused_until, paused_until FROM {t}sources WHERE name = 'api:b'"
    )
    found = {row[0]: row[1:] for row in await view(rig, "source_health", "name, state, failure_streak, last_error")}
    assert list(found) == sorted(found)
    assert {name: row[0] for name, row in found.items() if name.startswith("api:")} == {
        "api:a": "open",
        "api:b": "paused",
        "api:c": "disabled",
        "api:d": "broken",
    }
    assert found["api:d"] == ("broken", 7, "no route")
    until = {row[0]: moment(row[1]) for row in await view(rig, "source_health", "name, paused_until")}
    wanted = rig.clock.now() + timedelta(seconds=600)
    assert until["api:b"] is not None
    assert abs(until["api:b"] - wanted) < timedelta(seconds=1)
    await rig.store.run(sources.pause("api", None))
    closed = {row[0]: row[1:] for row in await view(rig, "source_health", "name, state, enabled")}
    assert (closed["api:a"][0], bool(closed["api:a"][1])) == ("disabled", False)


async def test_stuck_jobs_are_those_without_a_sign_of_life_for_five_minutes(rig: Rig) -> None:
    young = await rig.running(worker="young")
    rig.clock.move(-400)
    old = await rig.running(worker="old", lease=900)
    rig.clock.move(400)
    found = await view(rig, "stuck_jobs", "CAST(id AS text), locked_by, time_since_heartbeat")
    assert [row[:2] for row in found] == [(old.id, "old")]  # also `young` has sent no heartbeat yet
    since = found[0][2]
    seconds = since.total_seconds() if isinstance(since, timedelta) else since
    assert 400 <= seconds < 1000
    await rig.fetch(
        "UPDATE {t}jobs_live SET heartbeat_at = (SELECT max(locked_at) FROM {t}jobs_live) WHERE locked_by = 'old'"
    )
    assert await view(rig, "stuck_jobs") == []
    await rig.fetch("UPDATE {t}jobs_live SET locked_at = heartbeat_at WHERE locked_by = 'old'")
    assert await rig.state(young.id) == "running"


async def test_backlog_counts_what_could_start_and_not_what_waits_for_its_time(rig: Rig) -> None:
    rig.clock.move(-100)
    await rig.enqueue_many(3)
    await rig.enqueue_many(2, task="other")
    soon = rig.clock.now() + timedelta(seconds=50)  # has come by now; no worker has promoted it
    await rig.enqueue(run_after=soon)
    rig.clock.move(100)
    await rig.enqueue_many(5, run_after=rig.clock.now() + timedelta(hours=1))
    await rig.enqueue_many(4, queue="links")
    assert await runnable(rig) == 6
    assert await runnable(rig, "links") == 4
    ((age, mean),) = await rig.fetch(
        "SELECT oldest_age_seconds, mean_run_seconds FROM {t}backlog WHERE queue = 'default'"
    )
    assert 99 < age < 700
    assert mean is None
    await rig.store.run(queues.pause("links"))
    assert await runnable(rig, "links") == 0
    await rig.store.run(queues.resume("links"))
    assert await runnable(rig, "links") == 4


async def test_backlog_counts_a_source_up_to_what_it_lets_in(rig: Rig) -> None:
    for name in ("api:open", "api:limited", "api:off", "api:paused", "api:rate"):
        await rig.enqueue_many(9, source=name)
    await rig.store.run(sources.set_policy("api:limited", {"concurrency": 2}))
    await rig.store.run(sources.set_policy("api:rate", {"rate": 6.0}))  # three starts in thirty seconds
    await rig.store.run(sources.pause("api:off", None))
    await rig.store.run(sources.pause("api:paused", 600))
    assert await runnable(rig) == 9 + 2 + 0 + 0 + 3
    await rig.claim(1, task="t")  # the first is one of api:limited
    assert [row[0] for row in await rig.fetch("SELECT source FROM {t}jobs_live WHERE state = 'running'")] == [
        "api:limited"
    ]
    assert await runnable(rig) == 9 + 1 + 3
    await rig.store.run(sources.set_policy("api", {"total": 6}))
    assert await runnable(rig) == 5  # one of the class runs
    await rig.store.run(sources.pause("api", None))
    assert await runnable(rig) == 0


async def test_backlog_counts_one_probe_of_a_breaker_that_is_half_open(rig: Rig) -> None:
    await rig.enqueue_many(9, source="api:x")
    await rig.fetch(
        "INSERT INTO {t}sources (name, opened_at, paused_until) SELECT 'api:x', created_at, created_at"
        " FROM {t}jobs_live LIMIT 1"
    )
    assert await runnable(rig) == 1
    await rig.claim(1)
    assert await runnable(rig) == 0  # the probe runs


async def test_wanted_slots_are_those_in_use_and_those_that_start_the_backlog_in_time(rig: Rig) -> None:
    job = await rig.running()
    rig.clock.move(3)
    await rig.succeed(job)
    await rig.running()
    await rig.enqueue_many(40)
    ((queue, number, running, mean, wanted),) = await view(
        rig, "backlog", "queue, runnable, running, mean_run_seconds, wanted_slots"
    )
    assert (queue, number, running, wanted) == ("default", 40, 1, 1 + 40 * 3 // 30)
    assert mean == pytest.approx(3.0)
    await rig.cancel(*[job_id for job_id, row in (await rig.rows()).items() if row["state"] == "queued"])
    assert await view(rig, "backlog", "runnable, running, wanted_slots") == [(0, 1, 1)]  # not scaled away under a job


FINISHED = """
INSERT INTO {t}jobs_finished (
    id, task, queue, state, priority, args, max_attempts, attempt, releases, losses, convictions,
    run_after, created_at, started_at, finished_at, updated_at, drop_on)
SELECT {id}, 't', 'default', 'succeeded', 0, '{{}}', 5, 1, 0, 0, 0, {now}, {now}, {now}, {now}, {now}, '2031-01-08'
FROM {series}
"""
WAITING = """
INSERT INTO {t}jobs_live (
    id, task, queue, state, ready, priority, args, max_attempts, run_after, created_at, updated_at)
SELECT {id}, 't', 'q' || (n % 3), 'queued', {ready}, 0, '{{}}', 5, {later}, {now}, {now} FROM {series}
"""


@pytest.mark.parametrize("engine", ["postgres"])
def test_no_view_reads_a_table_of_jobs_from_end_to_end_on_postgres(database: str) -> None:
    """Without statistics, and with them."""
    ident = "CAST(lpad(to_hex(n), 32, '0') AS uuid)"
    words = {"t": "rowlock.", "id": ident, "now": "now()", "series": "generate_series(1, 20000) AS n"}
    # Without statistics the planner guesses from the size of the file that there are a seventh of these rows. To get a
    # thousand of a few thousand it rightly reads all, so there must be more.
    many = words | {"series": "generate_series(1, 120000) AS n"}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(FINISHED.format(**many))
        connection.execute(WAITING.format(**words, ready="n % 2 = 0", later="now() + interval '1 day'"))
        for analysed in (False, True):
            if analysed:
                connection.execute("ANALYZE rowlock.jobs_live, rowlock.jobs_finished")
            for name in NAMES:
                rows = connection.execute(f"EXPLAIN SELECT * FROM rowlock.{name}").fetchall()
                plan = "\n".join(row[0] for row in rows)
                assert "Seq Scan on jobs_" not in plan, f"{name}, analysed: {analysed}\n{plan}"
        assert connection.execute("SELECT queue, runnable FROM rowlock.backlog").fetchall() == [
            ("q0", 3333), ("q1", 3333), ("q2", 3334)]  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite"])
def test_no_view_does_more_work_when_there_are_more_finished_or_waiting_jobs_on_sqlite(database: str) -> None:
    def numbers(first: int) -> str:
        return (
            f"(WITH RECURSIVE s (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {first + 4999})"
            " SELECT n FROM s)"
        )

    connection = apsw.Connection(database.removeprefix("sqlite:///"))
    now = "unixepoch('subsec')"
    words = {"t": "rowlock_", "id": "printf('00000000-0000-7000-8000-%012x', n)", "now": now}

    def steps(name: str) -> int:
        counted = 0

        def count() -> bool:
            nonlocal counted
            counted += 1
            return False

        connection.set_progress_handler(count, 100)
        connection.execute(f"SELECT * FROM rowlock_{name}").fetchall()
        connection.set_progress_handler(None)
        return counted

    def load(first: int) -> None:
        connection.execute(FINISHED.format(**words, series=numbers(first)))
        connection.execute(
            WAITING.format(**words, ready="0", later=f"{now} + 86400", series=numbers(first + 1_000_000))
        )

    load(1)
    before = {name: steps(name) for name in NAMES}
    load(10_000)
    load(20_000)
    for name in NAMES:
        assert steps(name) <= before[name] * 1.2 + 5, name
