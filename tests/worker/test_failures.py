"""An attempt that fails: how long the job waits, when it is dead, what is stored about the failure."""

import asyncio

import pytest

from rowlock import (
    Context,
    JobDead,
    Permanent,
    Retry,
    Rowlock,
    Snooze,
    SourceError,
    exponential,
    fixed,
)
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    attempts_of,
    count_jobs,
    fetch,
    frozen,
    row_of,
    working,
)


async def test_a_failing_job_waits_longer_each_time_and_is_dead_at_the_end(app: Rowlock, app_url: str) -> None:
    @app.task(max_attempts=4, backoff=exponential(base=10, cap=30))
    async def fail(ctx: Context) -> None:
        raise ValueError(f"no {ctx.attempt}")

    waits = []
    async with frozen(app, app_url) as helper:
        job = await fail.enqueue()
        for attempt in range(1, 4):
            await helper.drain()
            row = await row_of(app, job.id)
            assert (row["state"], row["attempt"], row["error_code"]) == ("retryable", attempt, "ValueError")
            assert f"no {attempt}" in row["error_message"]
            waits.append((row["run_after"] - row["updated_at"]).total_seconds())
            await helper.travel(seconds=waits[-1] - 0.1)
            await helper.drain()
            assert (await row_of(app, job.id))["attempt"] == attempt, "ran before its time"
            await helper.travel(seconds=0.2)
        await helper.drain()
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"]) == ("dead", 4)
    assert "no 4" in row["error_message"]
    assert row["finished_at"] is not None
    for wait, full in zip(waits, (10, 20, 30), strict=True):
        assert full / 2 <= wait <= full, waits
    assert [(n, outcome) for n, outcome, _ in await attempts_of(app, job.id)] == [(n, "failed") for n in (1, 2, 3, 4)]


@on_one_engine
async def test_permanent_is_dead_at_once_with_its_code(app: Rowlock) -> None:
    @app.task(max_attempts=5)
    async def refuse() -> None:
        raise Permanent("robots.txt says no", code="HTTP_403")

    async with working(app):
        job = await refuse.enqueue()
        with pytest.raises(JobDead) as dead:
            await job.wait(timeout=10)
    assert "robots.txt says no" in str(dead.value)
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"], row["error_code"]) == ("dead", 1, "HTTP_403")
    assert "robots.txt says no" in row["error_message"]


@on_one_engine
async def test_retry_after_sets_the_time_of_the_next_try(app: Rowlock, app_url: str) -> None:
    @app.task(max_attempts=3)
    async def later() -> None:
        raise Retry(after=90)

    async with frozen(app, app_url) as helper:
        job = await later.enqueue()
        for attempt in (1, 2):
            await helper.drain()
            row = await row_of(app, job.id)
            assert (row["state"], row["attempt"], row["releases"]) == ("retryable", attempt, 0)
            wait = (row["run_after"] - row["updated_at"]).total_seconds()
            assert 90 <= wait <= 90 * 1.2, "never earlier than asked"
            await helper.travel(seconds=wait + 0.01)
        await helper.drain()
        assert (await app.job(job.id)).state == "dead", "Retry uses a try"


@on_one_engine
async def test_snooze_uses_no_try(app: Rowlock, app_url: str) -> None:
    calls = []

    @app.task(max_attempts=1)
    async def not_yet(ctx: Context) -> str:
        calls.append(ctx.attempt)
        if len(calls) < 4:
            raise Snooze(60)
        return "done"

    async with frozen(app, app_url) as helper:
        job = await not_yet.enqueue()
        for n in (1, 2, 3):
            await helper.drain()
            row = await row_of(app, job.id)
            assert (row["state"], row["attempt"], row["releases"]) == ("queued", n, n)
            await helper.travel(seconds=59)
            await helper.drain()
            assert len(calls) == n, "woke too early"
            await helper.travel(seconds=15)
        await helper.drain()
    assert (await app.job(job.id)).result == "done"
    assert calls == [1, 2, 3, 4]


@on_one_engine
async def test_rules_choose_by_exception(app: Rowlock, app_url: str) -> None:
    @app.task(
        max_attempts=3,
        backoff=fixed(seconds=10),
        rules={LookupError: fixed(minutes=30), KeyError: "dead", ConnectionError: 1},
    )
    async def fail(kind: str) -> None:
        raise {
            "key": KeyError("k"),
            "index": IndexError("i"),
            "reset": ConnectionResetError("c"),
            "else": OSError("e"),
        }[kind]

    async with frozen(app, app_url) as helper:
        jobs = {kind: await fail.enqueue(kind=kind) for kind in ("key", "index", "reset", "else")}
        await helper.drain()
        rows = {kind: await row_of(app, job.id) for kind, job in jobs.items()}
    assert rows["key"]["state"] == "dead", "the rule of the nearest class wins"
    waits = {
        kind: (row["run_after"] - row["updated_at"]).total_seconds() for kind, row in rows.items() if kind != "key"
    }
    assert 1800 <= waits["index"] <= 1800 * 1.2
    assert 1 <= waits["reset"] <= 1.2
    assert 10 <= waits["else"] <= 12


@on_one_engine
async def test_a_failure_says_what_and_where(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def fail() -> None:
        raise RuntimeError("the tap is closed")

    async with working(app):
        job = await fail.enqueue()
        with pytest.raises(JobDead, match="the tap is closed"):
            await job.wait(timeout=10)
    seen = await app.job(job.id)
    assert (seen.state, seen.error_code) == ("dead", "RuntimeError")
    assert "the tap is closed" in seen.error_message
    assert "test_failures.py" in seen.error_message, "where it was raised"


@on_one_engine
async def test_a_failing_job_does_not_affect_the_other_jobs(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def work(n: int) -> int:
        if n % 3 == 0:
            raise RuntimeError(n)
        return n

    async with working(app, pool_size=4):
        jobs = await work.enqueue_many([{"n": n} for n in range(60)])
        ends = await asyncio.gather(*(job.wait(timeout=20) for job in jobs), return_exceptions=True)
    assert [end if isinstance(end, int) else type(end).__name__ for end in ends] == [
        "JobDead" if n % 3 == 0 else n for n in range(60)
    ]


async def test_after_a_mixed_load_every_job_is_final_and_no_lease_is_held(app: Rowlock) -> None:
    @app.task(max_attempts=2, backoff=fixed(seconds=0.01), timeout=5)
    async def mixed(n: int) -> int:
        if n % 4 == 0:
            raise RuntimeError("x")
        if n % 4 == 1:
            raise Permanent("y")
        return n

    async with working(app, pool_size=8):
        jobs = await mixed.enqueue_many([{"n": n} for n in range(100)])
        await asyncio.gather(*(job.wait(timeout=20) for job in jobs), return_exceptions=True)
    assert await fetch(app, "SELECT count(*) FROM {t}jobs_live") == [(0,)]
    assert dict(await fetch(app, "SELECT state, count(*) FROM {t}jobs GROUP BY state")) == {"dead": 50, "succeeded": 50}
    assert await count_jobs(app) == 100


@on_one_engine
@each("error", [Permanent("no such page", code="GONE"), SourceError("no such page", code="GONE")])
async def test_what_is_raised_on_purpose_is_stored_as_its_message_alone(app: Rowlock, error: Exception) -> None:
    @app.task(type(error).__name__, max_attempts=1)
    async def fetch() -> None:
        raise error

    job = await fetch.enqueue()
    async with working(app):
        with pytest.raises(JobDead):
            await job.wait(10)
    row = await row_of(app, job.id)
    assert (row["error_code"], row["error_message"]) == ("GONE", "no such page")


@on_one_engine
async def test_any_other_error_tells_where_it_was_raised(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def fetch() -> None:
        raise ValueError("no such page")

    job = await fetch.enqueue()
    async with working(app):
        with pytest.raises(JobDead):
            await job.wait(10)
    assert (await row_of(app, job.id))["error_message"].startswith("no such page\n  ")
