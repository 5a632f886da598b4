"""A worker's leases over time, and the retry arithmetic of the documents."""

import asyncio
import logging

import pytest

from rowlock import Context, Rowlock, exponential, fixed
from rowlock.store.jobs import claim
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    attempts_of,
    frozen,
    in_state,
    row_of,
    until,
    working,
)


async def test_a_running_job_is_beaten_for_as_long_as_it_runs(app: Rowlock) -> None:
    """S4.7: a live worker keeps its job, however long it takes."""
    go = asyncio.Event()

    @app.task
    async def long() -> str:
        await go.wait()
        return "kept"

    async with working(app, heartbeat_seconds=0.3, lease_seconds=60.0, sweep_seconds=0.1):
        job = await long.enqueue()
        await in_state(app, job.id, "running")
        first = (await row_of(app, job.id))["lease_expires_at"]

        async def renewed() -> bool:
            row = await row_of(app, job.id)
            assert (row["state"], row["losses"]) == ("running", 0)
            return bool((row["lease_expires_at"] - first).total_seconds() > 1.0 and row["heartbeat_at"])

        await until(renewed, 30)  # by several beats
        go.set()
        assert await job.wait(timeout=10) == "kept"
    assert (await row_of(app, job.id))["attempt"] == 1


async def test_the_jobs_of_a_worker_that_fell_silent_are_taken_back(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    """S0.13, S4.6, S4.8, S4.9: no job stays running for ever; the log says from whom it was taken."""

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> int:
        return ctx.attempt

    job = await work.enqueue()
    store = await app.store()
    silent = claim.claim(
        "silent-worker", "00000000-0000-4000-8000-000000000001", [claim.Range("default", "work")], 1, 0.2
    )
    assert [claimed.id for claimed in await store.run(silent)] == [job.id]
    with caplog.at_level(logging.INFO):
        async with working(app, heartbeat_seconds=0.2, lease_seconds=0.5, sweep_seconds=0.1):
            assert await job.wait(timeout=20) == 2
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"], row["losses"], row["max_attempts"]) == ("succeeded", 2, 1, 1)
    assert [a[:2] for a in await attempts_of(app, job.id)] == [(1, "lost")]
    assert any(job.id in line and "silent-worker" in line for line in (r.getMessage() for r in caplog.records))


@on_one_engine
async def test_max_retry_3_means_4_attempts(app: Rowlock, app_url: str) -> None:
    runs: list[int] = []

    max_retry = 3

    @app.task(max_attempts=1 + max_retry, backoff=fixed(seconds=1))
    async def fail(ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise RuntimeError("x")

    async with frozen(app, app_url) as helper:
        job = await fail.enqueue()
        for _ in range(6):
            await helper.drain()
            await helper.travel(seconds=2)
    assert runs == [1, 2, 3, 4]
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"], row["max_attempts"]) == ("dead", 4, 4)


@on_one_engine
async def test_two_attempts_with_five_minutes_between(app: Rowlock, app_url: str) -> None:
    """S0.25, S0.26: the first failure waits 5 minutes, the second is the end."""

    @app.task(max_attempts=2, backoff=fixed(minutes=5))
    async def fail() -> None:
        raise RuntimeError("x")

    async with frozen(app, app_url) as helper:
        job = await fail.enqueue()
        await helper.drain()
        row = await row_of(app, job.id)
        assert (row["state"], row["attempt"]) == ("retryable", 1)
        assert 300 <= (row["run_after"] - row["updated_at"]).total_seconds() <= 360
        await helper.travel(seconds=299)
        await helper.drain()
        assert (await app.job(job.id)).attempt == 1
        await helper.travel(seconds=62)
        await helper.drain()
        row = await row_of(app, job.id)
    assert (row["state"], row["attempt"]) == ("dead", 2)


@on_one_engine
async def test_exponential_backoff_doubles_up_to_a_day(app: Rowlock, app_url: str) -> None:
    """S4.13: base × 2^n, at most 1440 minutes."""

    @app.task(max_attempts=6, backoff=exponential(base=3 * 3600, cap=24 * 3600))
    async def fail() -> None:
        raise RuntimeError("x")

    async with frozen(app, app_url) as helper:
        job = await fail.enqueue()
        for n in range(5):
            await helper.drain()
            row = await row_of(app, job.id)
            full = min(24 * 3600, 3 * 3600 * 2**n)
            wait = (row["run_after"] - row["updated_at"]).total_seconds()
            assert row["attempt"] == n + 1
            assert full / 2 <= wait <= full
            await helper.travel(seconds=wait + 0.01)
        assert full == 24 * 3600
