"""What surrounds an attempt: its context, the worker's resources, middleware and the error hook."""

import asyncio
import logging
from typing import Any

import pytest

from rowlock import (
    Context,
    InvalidArguments,
    JobDead,
    Permanent,
    Retry,
    Rowlock,
    fixed,
)
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import (
    in_state,
    row_of,
    working,
)


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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


@on_one_engine
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
@each("kind", ["permanent", "retry", "timeout", "thread", "result"])
async def test_the_error_hook_sees_every_kind_of_failure(app_url: str, kind: str) -> None:
    """S0.29 wants every job failure captured: also those that the handler raised on purpose, and timeouts."""
    seen: list[str] = []

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
    async with Rowlock(app_url) as app:
        app.on_error(lambda ctx, error: seen.append(ctx.job_id))
        work = app.task(kind, max_attempts=1, timeout=0.1 if kind == "timeout" else None)(bodies[kind])
        async with working(app):
            job = await work.enqueue()
            await in_state(app, job.id, "dead")
    assert seen == [job.id]


def test_an_async_error_hook_is_refused_when_it_is_registered() -> None:
    async def report(ctx: Context, error: BaseException) -> None: ...

    with pytest.raises(InvalidArguments, match="must be a plain function"):
        Rowlock("sqlite:///unused.db").on_error(report)


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
