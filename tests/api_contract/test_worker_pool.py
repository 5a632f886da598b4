"""S2's WorkerPool: slots, claims, graceful stop, log lines, wake-up; and the retry arithmetic of the documents."""

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import time
from typing import Any

import pytest

from rowlock import ConfigError, Context, Finished, InvalidArguments, Rowlock, WorkerPool, exponential, fixed
from rowlock.store import jobs
from support.contract_tasks import (
    attempts_of,
    execute,
    fetch,
    frozen,
    in_state,
    other_process,
    pause,
    resume,
    row_of,
    until,
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
    async with asyncio.timeout(5):
        await pool.stop()
    late = await work.enqueue(n=4)
    with pytest.raises(TimeoutError):
        await late.wait(timeout=0.3)


async def test_a_pool_may_be_stopped_twice(app: Rowlock) -> None:
    pool = WorkerPool(app)
    await pool.start()
    async with asyncio.timeout(10):
        await pool.stop()
        await pool.stop()


async def test_one_round_claims_and_assigns(app: Rowlock) -> None:
    done = asyncio.Event()

    @app.task
    async def work() -> None:
        done.set()

    await work.enqueue()
    pool = WorkerPool(app)
    await pool.start()
    try:
        await pool._poll_and_assign()
        async with asyncio.timeout(10):
            await done.wait()
    finally:
        await pool.stop()


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


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_the_pool_size_is_never_exceeded(app: Rowlock, in_thread: bool) -> None:
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

    work = app.task("work")(thread_body if in_thread else async_body)
    async with working(app, pool_size=3):
        jobs = await work.enqueue_many([{}] * 40)
        await asyncio.gather(*(job.wait(timeout=20) for job in jobs))
    assert most == 3, "the slots are all used, and no more"


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


async def test_a_slow_task_leaves_what_it_cannot_start_in_the_queue(app: Rowlock) -> None:
    go = asyncio.Event()

    @app.task
    async def slow() -> None:
        await go.wait()

    async with working(app, pool_size=2):
        jobs = await slow.enqueue_many([{}] * 6)

        async def two_running() -> bool:
            return await fetch(app, "SELECT count(*) FROM {t}jobs WHERE state = 'running'") == [(2,)]

        await until(two_running)
        for _ in range(5):
            assert await two_running()
            await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(*(job.wait(timeout=10) for job in jobs))


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
    await asyncio.sleep(0.1)
    assert not stopping.done(), "stop waits for what runs"
    go.set()
    async with asyncio.timeout(5):
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
    assert 0.25 < time.monotonic() - started < 5
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
    await until(lambda: ran > 300 and pool.waiting > 0)
    gate.clear()
    started = ran
    stopping = asyncio.create_task(pool.stop())
    assert pool.waiting > 0, "nothing was claimed ahead: this test would show nothing"

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


WORKER_ID = re.compile(rf"{re.escape(socket.gethostname())}-{os.getpid()}-(\d{{13}})-[0-9a-z]+")


async def test_the_worker_id_says_host_process_and_start(app: Rowlock) -> None:
    seen: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        seen.append(str((await row_of(app, ctx.job_id))["locked_by"]))

    before = time.time() * 1000
    async with working(app):
        await (await work.enqueue()).wait(timeout=10)
    async with working(app):
        await (await work.enqueue()).wait(timeout=10)
    matches = [WORKER_ID.fullmatch(worker) for worker in seen]
    assert all(matches), seen
    assert all(before - 1 <= int(match[1]) <= time.time() * 1000 + 1 for match in matches if match)
    assert seen[0] != seen[1], "two workers started in one millisecond still differ"


async def test_log_lines_are_those_of_the_document(app: Rowlock, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def work() -> None: ...

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise RuntimeError("the tap is closed")

    with caplog.at_level(logging.DEBUG):
        async with working(app):
            good, bad = await work.enqueue(), await fail.enqueue()
            await good.wait(timeout=10)
            await until(lambda: any("the tap is closed" in r.getMessage() for r in caplog.records))
    lines = [record.getMessage() for record in caplog.records]
    (started,) = [line for line in lines if line.startswith("Worker started: ")]
    worker = started.removeprefix("Worker started: ").split()[0]
    assert WORKER_ID.fullmatch(worker)
    assert f"Job {good.id} claimed by {worker}" in lines
    assert any(re.fullmatch(rf"Job {good.id} completed in \d+\.\d+s", line) for line in lines)
    assert any(bad.id in line and "the tap is closed" in line for line in lines), "S1.10: id and message"


async def test_log_records_carry_the_fields_of_the_document(app: Rowlock, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def work() -> None: ...

    @app.task(max_attempts=1, source=lambda domain: domain)
    async def fail(domain: str) -> None:
        raise RuntimeError("x")

    with caplog.at_level(logging.DEBUG):
        async with working(app):
            jobs = await work.enqueue_many([{}] * 3)
            jobs += await fail.enqueue_many([{"domain": "bad.example"}] * 2)
            await asyncio.gather(*[job.wait(timeout=10) for job in jobs], return_exceptions=True)
    records = [vars(record) for record in caplog.records if record.name.startswith("rowlock")]
    for name, value in (("batch_claimed_count", 5), ("success_count", 3), ("fail_count", 2)):
        assert sum(record[name] for record in records if name in record) == value, name
    durations = [r["job_duration_ms"] for r in records if r["msg"].startswith("Job ") and "job_duration_ms" in r]
    assert len(durations) == 5
    assert all(0 <= duration < 10_000 for duration in durations)
    (top,) = [record["top_failures"] for record in records if "top_failures" in record]
    assert "bad.example=2" in top, "the domains that fail most"


async def test_the_summary_leaves_out_tasks_that_are_not_counted(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(counted=False, max_attempts=1)
    async def keep_books(finished: Finished) -> None:
        if finished["state"] == "dead":
            raise RuntimeError("the books do not balance")

    @app.task(max_attempts=1, on_success=keep_books, on_dead=keep_books)
    async def work(n: int) -> None:
        if n == 0:
            raise RuntimeError("x")

    with caplog.at_level(logging.DEBUG):
        async with working(app):
            await work.enqueue_many([{"n": n} for n in range(4)])

            async def all_done() -> bool:
                return len(await app.jobs(state=["succeeded", "dead"])) == 8

            await until(all_done)
    records = [vars(record) for record in caplog.records if "batch_claimed_count" in vars(record)]
    for name, value in (("batch_claimed_count", 4), ("success_count", 3), ("fail_count", 1)):
        assert sum(record[name] for record in records) == value, name
    assert all("keep_books" not in record["top_failures"] for record in records)
    with pytest.raises(InvalidArguments, match="counted must be True or False, not 'no'"):
        app.task("other", counted="no")(print)  # type: ignore[call-overload]


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
            assert started[n] - sent < 5
        async with other_process(app_url) as enqueue:
            for n in (4, 5, 6):
                await until(lambda: pool.idle)
                _, sent = await enqueue("wake", n=n)
                await until(lambda n=n: n in started)
                assert started[n] - sent < 5


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

    async with working(app, poll_interval_seconds=5):
        jobs = [await late.using(delay=0.3 + 0.15 * n).enqueue(n=n) for n in range(5)]
        await asyncio.gather(*(job.wait(timeout=10) for job in jobs))
    due = [(await row_of(app, job.id))["run_after"].timestamp() for job in jobs]
    lateness = sorted(started[n] - due[n] for n in range(5))
    assert lateness[0] >= -0.01, "before its time"
    assert lateness[2] <= 0.25, lateness
    assert lateness[-1] <= 1, lateness  # on a machine that has other things to do, too


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


async def test_a_running_job_is_beaten_for_as_long_as_it_runs(app: Rowlock) -> None:
    """S4.7: a live worker keeps its job, however long it takes: longer than a lease here."""
    go = asyncio.Event()

    @app.task
    async def long() -> str:
        await go.wait()
        return "kept"

    async with working(app, heartbeat_seconds=0.4, lease_seconds=2.0, sweep_seconds=0.1):
        job = await long.enqueue()
        await in_state(app, job.id, "running")
        first = (await row_of(app, job.id))["lease_expires_at"]

        async def renewed() -> bool:
            row = await row_of(app, job.id)
            assert (row["state"], row["losses"]) == ("running", 0)
            return bool((row["lease_expires_at"] - first).total_seconds() > 2.5 and row["heartbeat_at"])

        await until(renewed)
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
    silent = jobs.claim("silent-worker", "00000000-0000-4000-8000-000000000001", [jobs.Lane("default", "work")], 1, 0.2)
    assert [claimed.id for claimed in await store.run(silent)] == [job.id]
    with caplog.at_level(logging.INFO):
        async with working(app, heartbeat_seconds=0.2, lease_seconds=0.5, sweep_seconds=0.1):
            assert await job.wait(timeout=20) == 2
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"], row["losses"], row["max_attempts"]) == ("succeeded", 2, 1, 1)
    assert [a[:2] for a in await attempts_of(app, job.id)] == [(1, "lost")]
    assert any(job.id in line and "silent-worker" in line for line in (r.getMessage() for r in caplog.records))


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
        serving = asyncio.create_task(app.run_worker(pool_size=1))
        job, late = await work.enqueue(), await work.enqueue()
        async with asyncio.timeout(10):
            await entered.wait()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        assert not serving.done(), "it did not wait for the running job"
        go.set()
        async with asyncio.timeout(10):
            await serving
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "the handlers are put back"
    finally:
        signal.signal(signal.SIGTERM, mine)
    assert (await app.job(job.id)).result == "finished"
    assert ((await row_of(app, late.id))["state"], (await row_of(app, late.id))["attempt"]) == ("queued", 0)


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
        assert await asyncio.gather(*(job.wait(timeout=5) for job in jobs[2:])) == list(range(2, 10))
        assert (await app.job(jobs[0].id)).state == "running"
        go.set()
        await jobs[0].wait(timeout=5)


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
