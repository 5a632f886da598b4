"""S2's WorkerPool: start, slots, claims, shared work, and the graceful stop."""

import asyncio
import signal
import time
from typing import Any

import pytest

from rowlock import ConfigError, Context, Rowlock, WorkerPool
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    attempts_of,
    fetch,
    row_of,
    until,
    until_renewed,
    working,
)


async def test_a_pool_starts_serves_and_stops(app: Rowlock) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    pool = WorkerPool(app, {"pool_size": 2})
    await pool.start()
    job = await work.enqueue(n=3)
    assert await job.wait(timeout=10) == 3
    async with asyncio.timeout(20):
        await pool.stop()
    late = await work.enqueue(n=4)
    with pytest.raises(TimeoutError):
        await late.wait(timeout=0.3)


@on_one_engine
async def test_a_pool_may_be_stopped_twice(app: Rowlock) -> None:
    pool = WorkerPool(app)
    await pool.start()
    async with asyncio.timeout(10):
        await pool.stop()
        await pool.stop()
    assert (await app.stats()).workers == 0, "it has signed off"


@on_one_engine
async def test_one_round_claims_and_assigns(app: Rowlock) -> None:
    done = asyncio.Event()

    @app.task
    async def work() -> None:
        done.set()

    job = await work.enqueue()
    pool = WorkerPool(app)
    await pool.start()
    try:
        assert await pool._poll_and_assign() == 0.0, "it has slept, if there was reason to"
        async with asyncio.timeout(10):
            await done.wait()
    finally:
        await pool.stop()
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"]) == ("succeeded", 1)


def test_settings_have_the_documented_defaults_and_the_keys_of_the_document() -> None:
    defaults = WorkerPool(Rowlock("sqlite:///unused.db")).settings
    assert (defaults.pool_size, defaults.poll_interval_seconds, defaults.claim_batch_size) == (10, 5, 500)
    assert (defaults.shutdown_timeout_seconds, defaults.heartbeat_seconds, defaults.lease_seconds) == (30, 15, 60)
    document = {"pool_size": 5, "poll_interval_seconds": 5, "claim_batch_size": 10, "shutdown_timeout_seconds": 30}
    assert document.items() <= dict(WorkerPool(Rowlock("sqlite:///unused.db"), document).settings).items()
    with pytest.raises(ConfigError, match="pool_sise"):
        WorkerPool(Rowlock("sqlite:///unused.db"), {"pool_sise": 5})
    with pytest.raises(ConfigError, match="pool_size"):
        WorkerPool(Rowlock("sqlite:///unused.db"), {"pool_size": 0})


@on_one_engine
@each("place", ["async", "thread"])
async def test_the_pool_size_is_never_exceeded(app: Rowlock, place: str) -> None:
    now, most = 0, 0

    def enter() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)

    def leave() -> None:
        nonlocal now
        now -= 1

    async def async_body() -> None:
        enter()
        await asyncio.sleep(0.01)
        leave()

    def thread_body() -> None:
        enter()
        time.sleep(0.01)
        leave()

    work = app.task(place)(thread_body if place == "thread" else async_body)
    async with working(app, pool_size=3):
        jobs = await work.enqueue_many([{}] * 40)
        await asyncio.gather(*(job.wait(timeout=20) for job in jobs))
    assert most == 3, "the slots are all used, and no more"


@on_one_engine
async def test_slow_jobs_are_not_hoarded(app: Rowlock, app_url: str) -> None:
    """Two workers, two slots each, four slow jobs: all four run at once, two in each."""
    go = asyncio.Event()
    ran_in: list[str] = []

    def register(owner: Rowlock, name: str) -> Any:
        @owner.task("slow")
        async def slow() -> None:
            ran_in.append(name)
            await go.wait()

        return slow

    slow = register(app, "first")
    async with Rowlock(app_url) as other:
        register(other, "second")
        jobs = await slow.enqueue_many([{}] * 4)
        async with working(app, pool_size=2):
            await until(lambda: len(ran_in) == 2)
            async with working(other, pool_size=2):
                await until(lambda: len(ran_in) == 4)
                assert sorted(ran_in) == ["first"] * 2 + ["second"] * 2
                go.set()
                await asyncio.gather(*(job.wait(timeout=10) for job in jobs))


@on_one_engine
async def test_a_slow_task_leaves_what_it_cannot_start_in_the_queue(app: Rowlock) -> None:
    go = asyncio.Event()

    @app.task
    async def slow() -> None:
        await go.wait()

    async with working(app, pool_size=2) as pool:
        jobs = await slow.enqueue_many([{}] * 6)

        async def two_running() -> bool:
            return await fetch(app, "SELECT count(*) FROM {t}jobs WHERE state = 'running'") == [(2,)]

        await until(two_running)
        for _ in range(5):
            assert await two_running()
            await pool._poll_and_assign()
        go.set()
        await asyncio.gather(*(job.wait(timeout=10) for job in jobs))


@on_one_engine
async def test_a_graceful_stop_lets_running_jobs_finish(app: Rowlock) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        entered.set()
        await go.wait()
        return "finished"

    pool = WorkerPool(app, {"shutdown_timeout_seconds": 20})
    await pool.start()
    job = await work.enqueue()
    async with asyncio.timeout(10):
        await entered.wait()
    stopping = asyncio.create_task(pool.stop())
    late = await work.enqueue()
    await until(lambda: pool.slots.closed)
    assert not stopping.done(), "stop waits for what runs"
    go.set()
    async with asyncio.timeout(15):  # its grace is 20
        await stopping
    assert (await app.job(job.id)).result == "finished"
    row = await row_of(app, late.id)
    assert (row["state"], row["attempt"]) == ("queued", 0), "a stopping worker polls no new jobs"


async def test_what_does_not_finish_in_time_is_given_back_without_using_a_try(app: Rowlock) -> None:
    entered = asyncio.Event()

    @app.task(max_attempts=1)
    async def endless(ctx: Context) -> str:
        if ctx.attempt == 1:
            entered.set()
            await asyncio.sleep(60)
        return "second run"

    pool = WorkerPool(app, {"shutdown_timeout_seconds": 0.3})
    await pool.start()
    job = await endless.enqueue()
    async with asyncio.timeout(10):
        await entered.wait()
    started = time.monotonic()
    await pool.stop()
    assert 0.25 < time.monotonic() - started < 20
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"], row["releases"], row["lease_token"]) == ("queued", 1, 1, None)
    assert [a[1] for a in await attempts_of(app, job.id)] == ["released"]
    async with working(app):
        assert await job.wait(timeout=10) == "second run", "max_attempts=1, and still a try left"


async def test_prefetched_jobs_are_given_back_at_stop_without_using_a_try(app: Rowlock) -> None:
    """Fast tasks are claimed ahead; those not started when the worker stops go back as if never taken."""
    gate = asyncio.Event()
    gate.set()
    ran = 0

    @app.task(max_attempts=1)
    async def quick() -> None:
        nonlocal ran
        ran += 1
        await gate.wait()

    await quick.enqueue_many([{}] * 4000)
    pool = WorkerPool(app, {"pool_size": 2, "shutdown_timeout_seconds": 10})
    await pool.start()
    await until(lambda: ran > 300 and pool.slots.fill().waiting > 0)
    gate.clear()
    started = ran
    stopping = asyncio.create_task(pool.stop())
    assert pool.slots.fill().waiting > 0, "nothing was claimed ahead: this test would show nothing"

    async def only_the_slots() -> bool:
        return await fetch(app, "SELECT count(*) FROM {t}jobs WHERE state = 'running'") == [(2,)]

    await until(only_the_slots)  # while the slots still work, all else is back already
    gate.set()
    async with asyncio.timeout(10):
        await stopping
    states = dict(await fetch(app, "SELECT state, count(*) FROM {t}jobs GROUP BY state"))
    assert set(states) == {"queued", "succeeded"}, states
    assert states["queued"] + states["succeeded"] == 4000
    assert states["succeeded"] == ran <= started + 2, "what was given back had not started"
    given_back = "SELECT count(*), max(attempt - releases) FROM {t}jobs WHERE state = 'queued' AND attempt > 0"
    ((count, tries),) = await fetch(app, given_back)
    assert (count > 0, tries) == (True, 0)


async def test_two_workers_share_the_jobs_and_none_runs_twice(app: Rowlock, app_url: str) -> None:
    ran: list[int] = []

    def register(owner: Rowlock) -> Any:
        @owner.task("count")
        async def count(n: int) -> None:
            ran.append(n)
            await asyncio.sleep(0.001)

        return count

    count = register(app)
    async with Rowlock(app_url) as other:
        register(other)
        async with working(app, pool_size=5), working(other, pool_size=5):
            jobs = await count.enqueue_many([{"n": n} for n in range(200)])
            await asyncio.gather(*(job.wait(timeout=20) for job in jobs))
    assert sorted(ran) == list(range(200))


async def test_the_claim_is_committed_before_the_handler_starts(app: Rowlock, app_url: str) -> None:
    """S0.16, S0.17: running, who, since when, which attempt; seen by others while the handler has not done a thing."""
    seen: list[dict[str, Any]] = []

    @app.task
    async def work(ctx: Context) -> None:
        async with Rowlock(app_url) as elsewhere:
            seen.append(await row_of(elsewhere, ctx.job_id) | {"token": ctx.token})

    async with working(app) as pool:
        job = await work.enqueue()
        await job.wait(timeout=10)
    (row,) = seen
    assert (row["state"], row["attempt"], row["locked_by"]) == ("running", 1, pool.id)
    assert row["lease_token"] == row["token"]
    assert row["created_at"] <= row["locked_at"] == row["started_at"] <= row["updated_at"] < row["lease_expires_at"]
    done = await row_of(app, job.id)
    assert (done["state"], done["lease_token"], done["lease_expires_at"]) == ("succeeded", None, None)
    assert row["started_at"] <= done["finished_at"]


@on_one_engine
async def test_a_signal_stops_the_worker_gracefully(app: Rowlock) -> None:
    """S2.29, S2.30: SIGTERM: no new jobs, what runs finishes, and the program goes on after `run_worker`."""
    entered, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        entered.set()
        await go.wait()
        return "finished"

    mine = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # should the worker not catch it, the test must live to tell
    try:
        serving = asyncio.create_task(app.run_worker(pool_size=1, heartbeat_seconds=0.1))
        job, late = await work.enqueue(), await work.enqueue()
        async with asyncio.timeout(10):
            await entered.wait()
        signal.raise_signal(signal.SIGTERM)
        await until_renewed(app, job.id)  # it waits for the running job
        go.set()
        async with asyncio.timeout(10):
            await serving
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "the handlers are put back"
    finally:
        signal.signal(signal.SIGTERM, mine)
    assert (await app.job(job.id)).result == "finished"
    assert ((await row_of(app, late.id))["state"], (await row_of(app, late.id))["attempt"]) == ("queued", 0)


@on_one_engine
async def test_a_worker_settles_each_job_by_itself(app: Rowlock) -> None:
    """S0.20: of jobs that run in parallel, each ends when it ends."""
    go = asyncio.Event()

    @app.task(max_attempts=1)
    async def work(n: int) -> int:
        if n == 0:
            await go.wait()
        if n == 1:
            raise RuntimeError("x")
        return n

    async with working(app, pool_size=10):
        jobs = await work.enqueue_many([{"n": n} for n in range(10)])
        assert await asyncio.gather(*(job.wait(timeout=20) for job in jobs[2:])) == list(range(2, 10))
        assert (await app.job(jobs[0].id)).state == "running"
        go.set()
        await jobs[0].wait(timeout=20)
