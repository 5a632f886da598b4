"""Which jobs a worker finds and when: wake-ups, polling, delays, pauses, its queues and its tasks."""

import asyncio
import gc
import time
from typing import Any

import pytest

from rowlock import Rowlock
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    execute,
    in_state,
    other_process,
    pause,
    resume,
    row_of,
    until,
    working,
)


async def test_a_new_job_wakes_an_idle_worker_long_before_the_poll(app: Rowlock, app_url: str) -> None:
    """Enqueued by another app and by another process; the poll interval is far longer than the test waits."""
    started: dict[int, float] = {}

    def register(owner: Rowlock) -> Any:
        @owner.task("wake")
        async def wake(n: int) -> None:
            started[n] = time.time()

        return wake

    register(app)
    async with working(app, poll_interval_seconds=60) as pool, Rowlock(app_url) as other:
        wake = register(other)
        for n in (1, 2, 3):
            await until(lambda: pool.idle)
            sent = time.time()
            await wake.enqueue(n=n)
            await until(lambda n=n: n in started)
            assert started[n] - sent < 30, "the poll would have found it"
        async with other_process(app_url) as enqueue:
            for n in (4, 5, 6):
                await until(lambda: pool.idle)
                _, sent = await enqueue("wake", n=n)
                await until(lambda n=n: n in started)
                assert started[n] - sent < 30, "the poll would have found it"


@on_one_engine
async def test_without_wake_ups_the_poll_finds_the_work(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 1

    async with working(app, wakeups=False, poll_interval_seconds=0.3) as pool:
        await until(lambda: pool.idle)
        assert await (await work.enqueue()).wait(timeout=10) == 1


async def test_a_delayed_job_starts_on_time_whatever_the_poll_interval(app: Rowlock) -> None:
    started: dict[int, float] = {}

    @app.task
    async def late(n: int) -> None:
        started[n] = time.time()

    async with working(app, poll_interval_seconds=60):
        jobs = [await late.using(delay=0.3 + 0.3 * n).enqueue(n=n) for n in range(5)]
        await asyncio.gather(*(job.wait(timeout=30) for job in jobs))
    due = [(await row_of(app, job.id))["run_after"].timestamp() for job in jobs]
    lateness = sorted(started[n] - due[n] for n in range(5))
    assert lateness[0] >= -0.01, "before its time"
    assert lateness[0] <= 0.25, lateness  # the machine may have other things to do at some of the moments
    assert lateness[-1] <= 30, "the poll would have found it"


async def test_a_paused_queue_is_not_served(app: Rowlock) -> None:
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    await pause(app, "default")
    async with working(app, queues=["default", "other"]):
        job = await work.enqueue(n=1)
        await (await work.using(queue="other").enqueue(n=2)).wait(timeout=10)
        with pytest.raises(TimeoutError):
            await job.wait(timeout=0.4)
        assert ran == [2]
        await resume(app, "default")
        await job.wait(timeout=10)
    assert ran == [2, 1]


@on_one_engine
async def test_only_the_workers_queues_are_served(app: Rowlock) -> None:
    @app.task(queue="links")
    async def work() -> int:
        return 1

    job = await work.enqueue()
    async with working(app, queues=["default"]):
        with pytest.raises(TimeoutError):
            await job.wait(timeout=0.3)
    async with working(app, queues=["links"]):
        assert await job.wait(timeout=10) == 1


async def test_unknown_tasks_are_left_alone_and_not_in_the_way(app: Rowlock, app_url: str) -> None:
    async with Rowlock(app_url) as other:

        @other.task
        async def foreign() -> None: ...

        strangers = await foreign.using(priority=-100).enqueue_many([{}] * 50)

    @app.task
    async def mine() -> int:
        return 1

    async with working(app):
        assert await (await mine.enqueue()).wait(timeout=10) == 1
    for stranger in (strangers[0], strangers[-1]):
        row = await row_of(app, stranger.id)
        assert (row["state"], row["attempt"]) == ("queued", 0)


async def test_a_row_that_cannot_be_understood_reaches_an_end_and_harms_nobody(app: Rowlock) -> None:
    """Other programs write rows too. What cannot be decided about must not leave the job running."""

    @app.task
    async def fail(n: int) -> int:
        raise RuntimeError("x")

    @app.task
    async def fine(n: int) -> int:
        return n

    broken = await fail.using(delay=3600).enqueue(n=1)
    strange = "UPDATE {t}jobs_live SET backoff = $1, ready = true, run_after = created_at WHERE id = $2"
    await execute(app, strange, '{"kind": "lunar"}', broken.id)
    async with working(app):
        assert await (await fine.enqueue(n=2)).wait(timeout=10) == 2
        try:
            state = await in_state(app, broken.id, "retryable", "dead")
        except AssertionError:
            state = "running"
        assert await (await fine.enqueue(n=3)).wait(timeout=10) == 3
    gc.collect()  # an attempt that raised nowhere would speak now, and not while the assertion is put into words
    assert state in ("retryable", "dead")
