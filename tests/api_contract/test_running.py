"""Running: results, failures and what follows them, timeouts, cancel, errors that are hard to store."""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rowlock import (
    Context,
    InvalidArguments,
    JobCancelled,
    JobDead,
    NotAllowed,
    Permanent,
    Retry,
    Rowlock,
    Snooze,
    SourceError,
    exponential,
    fixed,
)
from support.contract_tasks import (
    attempts_of,
    count_jobs,
    double_in_process,
    endless_in_process,
    fail_in_process,
    fetch,
    frozen,
    importable_app,
    in_state,
    report_from_process,
    row_of,
    until,
    working,
)


class Page(BaseModel):
    title: str
    size: int = 0


# Results and progress


VALUES = [None, True, 0, -1.5, "", "text 🚣", [], [1, [2]], {}, {"a": {"b": None}}]


async def test_results_come_back_as_they_were(app: Rowlock) -> None:
    @app.task
    async def give(n: int) -> Any:
        return VALUES[n]

    async with working(app):
        jobs = await give.enqueue_many([{"n": n} for n in range(len(VALUES))])
        assert [await job.wait(timeout=10) for job in jobs] == VALUES
    for job, value in zip(jobs, VALUES, strict=True):
        seen = await app.job(job.id)
        assert (seen.state, seen.result, seen.attempt, seen.error_message) == ("succeeded", value, 1, None)
        row = await row_of(app, job.id)
        assert row["created_at"] <= row["started_at"] <= row["finished_at"]
        assert (row["lease_token"], row["error_code"]) == (None, None)


async def test_a_typed_result_comes_back_typed(app: Rowlock) -> None:
    @app.task
    async def read(title: str) -> Page:
        return Page(title=title, size=len(title))

    async with working(app):
        job = await read.enqueue(title="abc")
        assert await job.wait(timeout=10) == Page(title="abc", size=3)
    assert (await row_of(app, job.id))["result"] == {"title": "abc", "size": 3}


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_results_of_composed_types_come_back_typed_too(app: Rowlock) -> None:
    """A type checker is told `list[Page]`, so `list[Page]` it must be."""

    @app.task
    async def pages() -> list[Page]:
        return [Page(title="a")]

    @app.task
    async def maybe() -> Page | None:
        return Page(title="b")

    @app.task
    async def named() -> dict[str, Page]:
        return {"c": Page(title="c")}

    @app.task
    async def moment() -> datetime:
        return datetime(2026, 8, 1, tzinfo=UTC)

    @app.task
    def pair() -> tuple[int, Page]:
        return (1, Page(title="d"))

    async with working(app):
        assert await (await pages.enqueue()).wait(timeout=10) == [Page(title="a")]
        assert await (await maybe.enqueue()).wait(timeout=10) == Page(title="b")
        assert await (await named.enqueue()).wait(timeout=10) == {"c": Page(title="c")}
        assert await (await moment.enqueue()).wait(timeout=10) == datetime(2026, 8, 1, tzinfo=UTC)
        assert await (await pair.enqueue()).wait(timeout=10) == (1, Page(title="d"))


async def test_progress_is_stored_while_the_job_runs(app: Rowlock) -> None:
    go = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.progress(40, phase="fetch", message="reading")
        await go.wait()

    async with working(app):
        job = await work.enqueue()

        async def stored() -> bool:
            seen = await app.job(job.id)
            return (seen.progress, seen.phase, seen.message) == (40, "fetch", "reading")

        await until(stored)
        assert (await app.job(job.id)).state == "running"
        go.set()
        await job.wait(timeout=10)


async def test_a_thread_reports_progress(app: Rowlock) -> None:
    go = threading.Event()

    @app.task
    def work(ctx: Context) -> None:
        ctx.progress(25, message="half of half")
        assert go.wait(10)

    async with working(app):
        job = await work.enqueue()

        async def stored() -> bool:
            return (await app.job(job.id)).progress == 25

        await until(stored)
        go.set()
        await job.wait(timeout=10)


async def test_a_progress_that_is_no_percentage_is_a_clear_failure(app: Rowlock) -> None:
    wrong: list[Any] = [-1, 101, float("nan"), "half"]

    @app.task(max_attempts=1)
    async def work(ctx: Context, n: int) -> None:
        await ctx.progress(wrong[n])

    async with working(app):
        for n in range(len(wrong)):
            with pytest.raises(JobDead, match="progress"):
                await (await work.enqueue(n=n)).wait(timeout=10)


# Failing


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


async def test_retry_says_when(app: Rowlock, app_url: str) -> None:
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
    assert "test_running.py" in seen.error_message, "where it was raised"


async def test_one_failure_does_not_touch_the_others(app: Rowlock) -> None:
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


# Errors that are hard to store


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")

    __repr__ = __str__


class Endless(BaseException):
    """Not an Exception."""


HARD = {
    "nul": lambda: ValueError("nul \x00 inside"),
    "surrogate": lambda: ValueError("lone \ud800 surrogate"),
    "huge": lambda: ValueError("x" * 50_000_000),
    "broken str": BrokenText,
    "system exit": lambda: SystemExit(3),
    "keyboard interrupt": KeyboardInterrupt,
    "base exception": lambda: Endless("not an Exception"),
    "generator exit": GeneratorExit,
    "self-cancelled": lambda: asyncio.CancelledError("by itself"),
    "group": lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    "empty": lambda: ValueError(),
    "lazy code": lambda: Permanent("why", code="X" * 100_000 + "\x00"),
}


@pytest.mark.parametrize("place", ["async", "thread"])
async def test_every_failure_reaches_an_outcome_soon(app: Rowlock, place: str) -> None:
    """F15: a failure that cannot be stored must not leave a job running; the worker goes on."""

    def body(kind: str) -> None:
        raise HARD[kind]()

    async def async_body(kind: str) -> None:
        body(kind)

    fail = app.task("fail", max_attempts=1)(body if place == "thread" else async_body)

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app, pool_size=2):
        for kind in HARD:
            job = await fail.enqueue(kind=kind)
            started = time.monotonic()
            with pytest.raises(JobDead):
                await job.wait(timeout=10)
            assert time.monotonic() - started < 5, kind
            row = await row_of(app, job.id)
            assert (row["state"], row["attempt"], row["lease_token"]) == ("dead", 1, None), kind
            stored = row["error_message"]
            assert 0 < len(stored.encode()) <= 8 * 1024, kind
            assert "\x00" not in stored + row["error_code"], kind
            assert 0 < len(row["error_code"]) <= 256, kind
            if kind == "huge":
                assert "x" * 1000 in stored
            (attempt,) = await attempts_of(app, job.id)
            assert attempt[:2] == (1, "failed"), kind
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"


STOP_ITERATION = """
import asyncio, sys
from rowlock import JobDead, Rowlock

async def main():
    async with Rowlock(sys.argv[1]) as app:
        @app.task(max_attempts=1)
        def in_thread():
            next(iter([]))

        @app.task(max_attempts=1)
        async def in_loop():
            next(iter([]))

        async with app.worker(shutdown_timeout_seconds=1):
            for task in (in_loop, in_thread):
                try:
                    await (await task.enqueue()).wait(timeout=5)
                except JobDead as dead:
                    print(dead.code)

asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_stop_iteration_is_a_failure_like_any_other(app_url: str) -> None:
    """No future can carry one, so that an attempt could wait for its own end for ever. Hence a process of its own."""
    command = [sys.executable, "-c", STOP_ITERATION, app_url]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(15):
            told, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        pytest.fail("the worker hangs")
    assert len(told.decode().split()) == 2, told


NOT_STORABLE = {
    "too large": "x" * (64 * 1024),
    "object": object(),
    "infinity": float("inf"),
    "nan": {"a": [float("nan")]},
    "bytes": b"\xff",
}


async def test_a_result_that_cannot_be_stored_is_a_clear_end(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def give(kind: str) -> Any:
        return NOT_STORABLE[kind]

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app):
        for kind in NOT_STORABLE:
            job = await give.enqueue(kind=kind)
            with pytest.raises(JobDead, match="result"):
                await job.wait(timeout=10)
            row = await row_of(app, job.id)
            assert (row["state"], row["error_code"], row["result"]) == ("dead", "INVALID_RESULT", None), kind
            assert "give" in row["error_message"], kind
            if kind == "too large":
                assert "65,536" in row["error_message"], "says the limit"
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"


async def test_strange_text_in_a_result_comes_back_or_fails_clearly(app: Rowlock) -> None:
    texts = ["nul \x00", "lone \ud800", "🚣\u2028\x1b"]

    @app.task(max_attempts=1)
    async def give(n: int) -> dict[str, str]:
        return {texts[n]: texts[n]}

    async with working(app):
        for n, text in enumerate(texts):
            job = await give.enqueue(n=n)
            if await in_state(app, job.id, "succeeded", "dead") == "succeeded":
                assert await job.wait(timeout=10) == {text: text}
            else:
                assert (await row_of(app, job.id))["error_code"] == "INVALID_RESULT"
                assert "🚣" not in text


async def test_a_result_of_exactly_the_limit_is_kept(app: Rowlock) -> None:
    @app.task
    async def give() -> str:
        return "x" * (64 * 1024 - 2)

    async with working(app):
        job = await give.enqueue()
        assert len(json.dumps(await job.wait(timeout=10))) == 64 * 1024


# Timeouts


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


async def test_a_timeout_uses_a_try_and_is_retried(app: Rowlock) -> None:
    @app.task(timeout=0.05, max_attempts=2, backoff=fixed(seconds=0.01))
    async def slow_once(ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return ctx.attempt

    async with working(app):
        job = await slow_once.enqueue()
        assert await job.wait(timeout=10) == 2


async def test_a_handlers_own_timeout_error_is_a_failure_not_a_timeout(app: Rowlock) -> None:
    @app.task(timeout=30, max_attempts=1)
    async def fail() -> None:
        raise TimeoutError("the site is slow")

    async with working(app):
        job = await fail.enqueue()
        with pytest.raises(JobDead, match="the site is slow"):
            await job.wait(timeout=10)
    assert [a[1] for a in await attempts_of(app, job.id)] == ["failed"]


async def test_a_handler_that_swallows_its_timeout_ends_in_bounded_time(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked, asked again, then its outcome is written without it; its late result is ignored."""
    monkeypatch.setattr("rowlock.work.stopping.SECOND_CANCEL_SECONDS", 0.1)
    monkeypatch.setattr("rowlock.work.stopping.GIVE_UP_SECONDS", 0.3)
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
    entered, go = threading.Event(), threading.Event()
    stops: list[bool] = []

    @app.task(timeout=0.1, max_attempts=1)
    def stand(ctx: Context) -> str:
        entered.set()
        assert go.wait(20)
        stops.append(ctx.should_stop)
        return "late"

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app, pool_size=2, heartbeat_seconds=0.2, lease_seconds=1.0, sweep_seconds=0.2):
        job = await stand.enqueue()
        await until(entered.is_set)
        token = (await row_of(app, job.id))["lease_token"]
        deadline = time.monotonic() + 1.5  # far past the timeout, and past a lease that nobody beats
        while time.monotonic() < deadline:
            row = await row_of(app, job.id)
            assert (row["state"], row["lease_token"]) == ("running", token)
            await asyncio.sleep(0.1)
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
        go.set()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["error_code"], row["attempt"], row["losses"]) == ("TIMEOUT", 1, 0)
    assert stops == [True], "ctx.should_stop says so"


# Cancel


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
            await job.wait(timeout=5)
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
        async with asyncio.timeout(5):
            await stopped.wait()
        with pytest.raises(JobCancelled):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["state"], row["result"], row["lease_token"]) == ("cancelled", None, None)


@pytest.mark.parametrize("way", ["returns", "raises"])
async def test_a_thread_sees_a_cancel_in_should_stop_and_ends_cancelled(app: Rowlock, way: str) -> None:
    """It cannot be killed, only asked. What it does when it has stopped early is neither a result nor a failure."""
    entered = threading.Event()

    @app.task
    def work(ctx: Context) -> str:
        entered.set()
        deadline = time.monotonic() + 20
        while not ctx.should_stop:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if way == "raises":
            raise RuntimeError("stopped early")
        return "stopped early"

    async with working(app, heartbeat_seconds=0.5, lease_seconds=2.0):
        job = await work.enqueue()
        await until(entered.is_set)
        await app.cancel(job.id)
        with pytest.raises(JobCancelled):
            await job.wait(timeout=10)
    row = await row_of(app, job.id)
    assert (row["state"], row["result"], row["attempt"]) == ("cancelled", None, 1)


async def test_a_cancelled_job_is_not_tried_again_when_its_handler_fails_on_the_way_out(app: Rowlock) -> None:
    entered = asyncio.Event()

    @app.task(backoff=fixed(seconds=0.01))
    async def work() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise RuntimeError("cannot clean up")

    async with working(app, heartbeat_seconds=0.5, lease_seconds=2.0):
        job = await work.enqueue()
        async with asyncio.timeout(10):
            await entered.wait()
        await app.cancel(job.id)
        with pytest.raises(JobCancelled):
            await job.wait(timeout=10)
    assert (await row_of(app, job.id))["attempt"] == 1


async def test_a_job_that_waits_for_its_retry_is_cancelled_at_once(app: Rowlock) -> None:
    @app.task(backoff=fixed(hours=1))
    async def fail() -> None:
        raise RuntimeError("x")

    async with working(app):
        job = await fail.enqueue()

        await in_state(app, job.id, "retryable")
        assert await app.cancel(job.id) == "cancelled"
        assert (await app.job(job.id)).state == "cancelled"


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


# Operator retry


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


# Waiting


async def test_wait_times_out_and_the_job_goes_on(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 1

    job = await work.enqueue()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        await job.wait(timeout=0.2)
    assert 0.15 < time.monotonic() - started < 10
    async with working(app):
        assert await job.wait(timeout=10) == 1
        assert await job.wait(timeout=10) == 1, "waiting again gives the same"


async def test_many_may_wait_for_one_job(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 7

    job = await work.enqueue()
    waiting = [asyncio.create_task(job.wait(timeout=10)) for _ in range(20)]
    async with working(app):
        assert await asyncio.gather(*waiting) == [7] * 20


# Context, resources, middleware, hooks


async def test_the_context_says_who_and_which_run(app: Rowlock) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.task(max_attempts=3, backoff=fixed(seconds=0.01))
    async def work(ctx: Context) -> None:
        seen.append((ctx.job_id, ctx.attempt, ctx.fence, ctx.token, ctx.should_stop))
        if ctx.attempt < 3:
            raise RuntimeError("again")

    async with working(app):
        job = await work.enqueue()
        await job.wait(timeout=10)
    assert [s[0] for s in seen] == [job.id] * 3
    assert [s[1] for s in seen] == [1, 2, 3]
    fences = [s[2] for s in seen]
    assert fences == sorted(set(fences)), "the fence grows with each run"
    assert len({s[3] for s in seen}) == 3, "a fresh token for each claim"
    assert [s[4] for s in seen] == [False] * 3


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


async def test_the_context_log_carries_the_job(app: Rowlock, caplog: pytest.LogCaptureFixture) -> None:
    @app.task("noisy")
    async def work(ctx: Context) -> None:
        ctx.log.info("hello from %s", "inside")

    with caplog.at_level(logging.INFO):
        async with working(app):
            job = await work.enqueue()
            await job.wait(timeout=10)
    (record,) = [record for record in caplog.records if "hello from inside" in record.getMessage()]
    assert record.job_id == job.id  # type: ignore[attr-defined]


async def test_a_handler_enqueues_through_its_context(app: Rowlock) -> None:
    @app.task("child")
    async def child(n: int) -> int:
        return n + 1

    @app.task
    async def parent(ctx: Context, n: int) -> list[str]:
        by_name = await ctx.enqueue("child", n=n)
        by_task = await ctx.enqueue(child, n=n + 10)
        return [by_name.id, by_task.id]

    async with working(app):
        ids = await (await parent.enqueue(n=1)).wait(timeout=10)
        assert [await (await app.job(job_id)).wait(timeout=10) for job_id in ids] == [2, 12]


async def test_resources_are_opened_once_and_closed_once(app: Rowlock) -> None:
    events: list[str] = []

    @app.lifespan
    async def resources() -> Any:
        events.append("open")
        yield {"http": "session"}
        events.append("close")

    @app.task
    async def use(ctx: Context) -> str:
        return str(ctx.resources["http"])

    @app.task
    def use_in_thread(ctx: Context) -> str:
        return str(ctx.resources["http"])

    async with working(app):
        jobs = [await use.enqueue(), await use.enqueue(), await use_in_thread.enqueue()]
        assert await asyncio.gather(*(job.wait(timeout=10) for job in jobs)) == ["session"] * 3
        assert events == ["open"]
    assert events == ["open", "close"]


async def test_resources_that_cannot_be_opened_stop_the_worker_from_starting(app: Rowlock) -> None:
    @app.lifespan
    async def resources() -> Any:
        raise RuntimeError("no network")
        yield {}

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(RuntimeError, match="no network"):
        async with asyncio.timeout(10):
            async with working(app):
                await asyncio.sleep(10)
    assert (await app.job(job.id)).state == "queued"


async def test_middleware_wraps_an_attempt_first_one_outermost(app: Rowlock) -> None:
    events: list[str] = []

    @app.middleware
    async def outer(ctx: Context, call_next: Any) -> Any:
        events.append("outer in")
        try:
            return await call_next()
        finally:
            events.append("outer out")

    @app.middleware
    async def inner(ctx: Context, call_next: Any) -> Any:
        events.append(f"inner in {ctx.job_id}")
        result = await call_next()
        events.append("inner out")
        return result * 2

    @app.task
    async def work(n: int) -> int:
        events.append("work")
        return n

    async with working(app):
        job = await work.enqueue(n=4)
        assert await job.wait(timeout=10) == 8, "what middleware returns is the result"
    assert events == ["outer in", f"inner in {job.id}", "work", "inner out", "outer out"]


async def test_middleware_may_stop_an_attempt_and_its_errors_are_the_attempts(app: Rowlock) -> None:
    ran: list[int] = []

    @app.middleware
    async def guard(ctx: Context, call_next: Any) -> Any:
        if ctx.attempt == 1:
            raise Permanent("not allowed", code="FORBIDDEN")
        return await call_next()

    @app.task
    async def work() -> None:
        ran.append(1)

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(JobDead, match="not allowed"):
            await job.wait(timeout=10)
    assert ran == []
    assert (await row_of(app, job.id))["error_code"] == "FORBIDDEN"


async def test_middleware_wraps_thread_tasks_too(app: Rowlock) -> None:
    events: list[str] = []

    @app.middleware
    async def around(ctx: Context, call_next: Any) -> Any:
        events.append("in")
        result = await call_next()
        events.append("out")
        return result

    @app.task
    def work() -> int:
        return 3

    async with working(app):
        assert await (await work.enqueue()).wait(timeout=10) == 3
    assert events == ["in", "out"]


async def test_the_error_hook_sees_each_failed_attempt_and_cannot_harm_it(app: Rowlock) -> None:
    seen: list[tuple[str, int, str]] = []

    @app.on_error
    def report(ctx: Context, error: BaseException) -> None:
        seen.append((ctx.job_id, ctx.attempt, str(error)))
        raise RuntimeError("the hook itself is broken")

    @app.task(max_attempts=2, backoff=fixed(seconds=0.01))
    async def fail() -> None:
        raise ValueError("bad")

    @app.task
    async def fine() -> str:
        return "fine"

    async with working(app):
        job = await fail.enqueue()
        with pytest.raises(JobDead, match="bad"):
            await job.wait(timeout=10)
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
    assert seen == [(job.id, 1, "bad"), (job.id, 2, "bad")]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("kind", ["permanent", "retry", "timeout", "thread", "result"])
async def test_the_error_hook_sees_every_kind_of_failure(app: Rowlock, kind: str) -> None:
    """S0.29 wants every job failure captured: also those that the handler raised on purpose, and timeouts."""
    seen: list[str] = []

    @app.on_error
    def report(ctx: Context, error: BaseException) -> None:
        seen.append(ctx.job_id)

    async def permanent() -> None:
        raise Permanent("no")

    async def retry() -> None:
        raise Retry("later", after=3600)

    async def timeout() -> None:
        await asyncio.sleep(60)

    def thread() -> None:
        raise ValueError("no")

    async def result() -> Any:
        return object()

    bodies = {"permanent": permanent, "retry": retry, "timeout": timeout, "thread": thread, "result": result}
    work = app.task(kind, max_attempts=1, timeout=0.1 if kind == "timeout" else None)(bodies[kind])
    async with working(app):
        job = await work.enqueue()
        await in_state(app, job.id, "dead")
    assert seen == [job.id]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_async_error_hook_is_awaited_or_refused(app: Rowlock) -> None:
    seen: list[str] = []

    async def report(ctx: Context, error: BaseException) -> None:
        seen.append(ctx.job_id)

    try:
        app.on_error(report)
    except InvalidArguments:
        return

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("bad")

    async with working(app):
        job = await fail.enqueue()
        await in_state(app, job.id, "dead")
    assert seen == [job.id], "the hook was taken, and never ran"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_resources_that_were_opened_are_closed_when_a_later_one_fails(app: Rowlock) -> None:
    events: list[str] = []

    @app.lifespan
    async def first() -> Any:
        events.append("open")
        try:
            yield {"first": 1}
        finally:
            events.append("close")

    @app.lifespan
    async def second() -> Any:
        raise RuntimeError("no network")
        yield {}

    with pytest.raises(RuntimeError, match="no network"):
        async with working(app):
            pass
    assert events == ["open", "close"]


# Processes


async def test_process_tasks_give_results_progress_and_errors(app_url: str, tmp_path: Path) -> None:
    async with importable_app(app_url) as app, working(app):
        double, child = await (await double_in_process.enqueue(n=4)).wait(timeout=30)
        assert double == 8
        assert child != os.getpid()
        reporting = await report_from_process.enqueue(until=f"{tmp_path}/go")

        async def stored() -> bool:
            seen = await app.job(reporting.id)
            return (seen.progress, seen.phase, seen.message) == (30, "child", "hello")

        await until(stored, 30)
        (tmp_path / "go").touch()
        assert await reporting.wait(timeout=30) == 1
        failing = await fail_in_process.enqueue()
        with pytest.raises(JobDead, match="from the child"):
            await failing.wait(timeout=30)
        assert (await row_of(app, failing.id))["error_code"] == "ValueError"


async def test_a_process_over_its_time_is_really_killed(app_url: str) -> None:
    async with importable_app(app_url) as app, working(app):
        endless = await endless_in_process.enqueue()
        with pytest.raises(JobDead):
            await endless.wait(timeout=30)
        row = await row_of(app, endless.id)
        assert (row["error_code"], row["attempt"], row["losses"]) == ("TIMEOUT", 1, 0)
        assert (await (await double_in_process.enqueue(n=1)).wait(timeout=30))[0] == 2


async def test_nothing_is_left_behind(app: Rowlock) -> None:
    """After a mixed load every job is final, and no row holds a lease."""

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


@pytest.mark.parametrize("error", [Permanent("no such page", code="GONE"), SourceError("no such page", code="GONE")])
async def test_what_is_raised_on_purpose_is_stored_as_its_message_alone(app: Rowlock, error: Exception) -> None:
    @app.task(max_attempts=1)
    async def fetch() -> None:
        raise error

    job = await fetch.enqueue()
    async with working(app):
        with pytest.raises(JobDead):
            await job.wait(10)
    row = await row_of(app, job.id)
    assert (row["error_code"], row["error_message"]) == ("GONE", "no such page")


async def test_any_other_error_tells_where_it_was_raised(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def fetch() -> None:
        raise ValueError("no such page")

    job = await fetch.enqueue()
    async with working(app):
        with pytest.raises(JobDead):
            await job.wait(10)
    assert (await row_of(app, job.id))["error_message"].startswith("no such page\n  ")
