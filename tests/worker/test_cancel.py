"""Cancel, and the operator's retry of a job that has ended."""

import asyncio
import threading
import time

import pytest

from rowlock import (
    Context,
    JobCancelled,
    JobDead,
    NotAllowed,
    Rowlock,
    fixed,
)
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    attempts_of,
    in_state,
    row_of,
    until,
    working,
)


@on_one_engine
async def test_cancel_of_a_queued_job_is_final_at_once(app: Rowlock) -> None:
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)

    job = await work.enqueue()
    assert await app.cancel(job.id) == "cancelled"
    assert (await app.job(job.id)).state == "cancelled"
    async with working(app):
        with pytest.raises(JobCancelled):
            await job.wait(timeout=20)
    assert ran == []


async def test_cancel_of_a_running_job_reaches_the_handler(app: Rowlock, app_url: str) -> None:
    entered, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with working(app, heartbeat_seconds=20, lease_seconds=60):  # no beat will tell it
        job = await work.enqueue()
        async with asyncio.timeout(10):
            await entered.wait()
        async with Rowlock(app_url) as elsewhere:  # from anywhere
            assert await elsewhere.cancel(job.id) == "cancelling"
        async with asyncio.timeout(15):  # the beat would take 20
            await stopped.wait()
        with pytest.raises(JobCancelled):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["state"], row["result"], row["lease_token"]) == ("cancelled", None, None)


@on_one_engine
@each("way", ["returns", "raises"])
async def test_a_thread_sees_a_cancel_in_should_stop_and_ends_cancelled(app: Rowlock, way: str) -> None:
    """It cannot be killed, only asked. What it does when it has stopped early is neither a result nor a failure."""
    entered = threading.Event()

    @app.task(way)
    def work(ctx: Context) -> str:
        entered.set()
        deadline = time.monotonic() + 20
        while not ctx.should_stop:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if way == "raises":
            raise RuntimeError("stopped early")
        return "stopped early"

    async with working(app, heartbeat_seconds=0.5, lease_seconds=20):
        job = await work.enqueue()
        await until(entered.is_set)
        await app.cancel(job.id)
        with pytest.raises(JobCancelled):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["state"], row["result"], row["attempt"]) == ("cancelled", None, 1)


@on_one_engine
async def test_a_cancelled_job_is_not_tried_again_when_its_handler_fails_on_the_way_out(app: Rowlock) -> None:
    entered = asyncio.Event()

    @app.task(backoff=fixed(seconds=0.01))
    async def work() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise RuntimeError("cannot clean up")

    async with working(app, heartbeat_seconds=0.5, lease_seconds=20):
        job = await work.enqueue()
        async with asyncio.timeout(10):
            await entered.wait()
        await app.cancel(job.id)
        with pytest.raises(JobCancelled):
            await job.wait(timeout=10)
    assert (await row_of(app, job.id))["attempt"] == 1


@on_one_engine
async def test_a_job_that_waits_for_its_retry_is_cancelled_at_once(app: Rowlock) -> None:
    @app.task(backoff=fixed(hours=1))
    async def fail() -> None:
        raise RuntimeError("x")

    async with working(app):
        job = await fail.enqueue()

        await in_state(app, job.id, "retryable")
        assert await app.cancel(job.id) == "cancelled"
        assert (await app.job(job.id)).state == "cancelled"


@on_one_engine
async def test_cancel_of_a_finished_or_unknown_job_says_so(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 1

    async with working(app):
        job = await work.enqueue()
        await job.wait(timeout=10)
    with pytest.raises(NotAllowed, match="finished"):
        await app.cancel(job.id)
    assert (await app.job(job.id)).result == 1
    unknown = "018f0000-0000-7000-8000-00000000ffff"
    with pytest.raises(LookupError, match=unknown):
        await app.cancel(unknown)


@on_one_engine
async def test_an_operators_retry_keeps_id_and_attempt_and_raises_the_maximum(app: Rowlock) -> None:
    well = False

    @app.task(max_attempts=2, backoff=fixed(seconds=0.01))
    async def work(ctx: Context) -> int:
        if not well:
            raise RuntimeError("not yet")
        return ctx.attempt

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        well = True
        assert (await row_of(app, job.id))["attempt"] == 2
        await app.retry(job.id)
        assert await (await app.job(job.id)).wait(timeout=10) == 3
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"], row["max_attempts"]) == ("succeeded", 3, 3)
    assert (row["error_code"], row["error_message"]) == (None, None)
    assert [a[0] for a in await attempts_of(app, job.id)] == [1, 2], "history is kept"


@on_one_engine
async def test_a_cancelled_job_may_be_retried_and_a_succeeded_one_not(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 1

    job = await work.enqueue()
    await app.cancel(job.id)
    await app.retry(job.id)
    async with working(app):
        assert await (await app.job(job.id)).wait(timeout=10) == 1
    with pytest.raises(NotAllowed, match="succeeded"):
        await app.retry(job.id)
    assert (await app.job(job.id)).state == "succeeded"
    with pytest.raises(LookupError):
        await app.retry("018f0000-0000-7000-8000-00000000ffff")


@on_one_engine
async def test_the_fence_grows_also_after_an_operators_retry(app: Rowlock) -> None:
    fences: list[int] = []

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        fences.append(ctx.fence)
        if len(fences) == 1:
            raise RuntimeError("once")

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        await app.retry(job.id)
        await job.wait(timeout=10)
    assert fences[0] < fences[1]
