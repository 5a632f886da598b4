"""Attempts that run longer than their task's timeout: in the event loop, in a thread, in a process."""

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from rowlock import (
    Context,
    JobDead,
    Rowlock,
    fixed,
)
from rowlock.core.job import Claimed
from rowlock.worker.attempt.attempt import LiveAttempt
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    attempts_of,
    double_in_process,
    endless_in_process,
    importable_app,
    row_of,
    until,
    working,
)


@on_one_engine
async def test_an_async_task_over_its_time_is_cancelled_and_times_out(app: Rowlock) -> None:
    cancelled = asyncio.Event()

    @app.task(timeout=0.1, max_attempts=1)
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with working(app):
        job = await sleep.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
    assert cancelled.is_set()
    row = await row_of(app, job.id)
    assert (row["state"], row["error_code"], row["attempt"]) == ("dead", "TIMEOUT", 1)
    assert [a[:2] for a in await attempts_of(app, job.id)] == [(1, "timed_out")]


@on_one_engine
async def test_a_timeout_uses_a_try_and_is_retried(app: Rowlock) -> None:
    @app.task(timeout=0.05, max_attempts=2, backoff=fixed(seconds=0.01))
    async def slow_once(ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return ctx.attempt

    async with working(app):
        job = await slow_once.enqueue()
        assert await job.wait(timeout=10) == 2


@on_one_engine
async def test_a_handlers_own_timeout_error_is_a_failure_not_a_timeout(app: Rowlock) -> None:
    @app.task(timeout=30, max_attempts=1)
    async def fail() -> None:
        raise TimeoutError("the site is slow")

    async with working(app):
        job = await fail.enqueue()
        with pytest.raises(JobDead, match="the site is slow"):
            await job.wait(timeout=10)
    assert [a[1] for a in await attempts_of(app, job.id)] == ["failed"]


@on_one_engine
async def test_a_handler_that_swallows_its_timeout_ends_in_bounded_time(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked, asked again, then its outcome is written without it; its late result is ignored."""
    monkeypatch.setattr("rowlock.worker.attempt.attempt.SECOND_CANCEL_SECONDS", 0.1)
    monkeypatch.setattr("rowlock.worker.attempt.attempt.GIVE_UP_SECONDS", 0.3)
    over = asyncio.Event()

    @app.task(timeout=0.05, max_attempts=1)
    async def stubborn() -> str:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        return "late"

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app):
        job = await stubborn.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        over.set()
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
    row = await row_of(app, job.id)
    assert (row["state"], row["error_code"], row["result"]) == ("dead", "TIMEOUT", None)


async def test_a_thread_that_overruns_keeps_its_lease_until_it_returns(app: Rowlock) -> None:
    over, go = threading.Event(), threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    def stand(ctx: Context) -> str:
        while not ctx.should_stop:
            time.sleep(0.01)
        over.set()
        assert go.wait(30)
        return "late"

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app, pool_size=2, heartbeat_seconds=0.2, lease_seconds=60.0):
        job = await stand.enqueue()
        await until(over.is_set)
        held = await row_of(app, job.id)

        async def renewed() -> bool:
            row = await row_of(app, job.id)
            assert (row["state"], row["lease_token"]) == ("running", held["lease_token"])
            return bool((row["lease_expires_at"] - held["lease_expires_at"]).total_seconds() > 0.5)

        await until(renewed)  # by several beats after the timeout
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
        go.set()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["error_code"], row["attempt"], row["losses"]) == ("TIMEOUT", 1, 0)


@on_one_engine
async def test_a_process_over_its_time_is_really_killed(app_url: str) -> None:
    async with importable_app(app_url) as app, working(app):
        endless = await endless_in_process.enqueue()
        with pytest.raises(JobDead):
            await endless.wait(timeout=30)
        row = await row_of(app, endless.id)
        assert (row["error_code"], row["attempt"], row["losses"]) == ("TIMEOUT", 1, 0)
        assert (await (await double_in_process.enqueue(n=1)).wait(timeout=30))[0] == 2


@each("stored", ["long", "", b"\x00"])
def test_a_timeout_that_is_no_number_is_none_and_keeps_no_other_job_from_starting(stored: object) -> None:
    """SQLite stores any value that another program writes."""
    job = Claimed(id="", task="t", timeout_seconds=stored)  # type: ignore[arg-type]
    assert LiveAttempt(job).job.timeout_seconds is None
