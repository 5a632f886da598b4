"""The caller: a task's function gets its arguments inside its middlewares and timeout, and its result is checked."""

import asyncio
import contextvars
from typing import Any

import pytest

from rowlock import Context, LeaseLost, Rowlock
from rowlock.core.outcome import Succeeded
from rowlock.store.engine.ids import new_token
from rowlock.store.jobs import claim
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.classify import ArgumentsMisfit, InvalidResult, Overran
from rowlock.worker.attempt.executor import Invoker
from support.rigs.worker import on_one_engine
from support.tasks.contract import count_jobs, execute, row_of

LIMIT = 30.0


class Called:
    """A caller on its own: what others of a worker are told is kept here."""

    def __init__(self, app: Rowlock) -> None:
        self.app, self.stopped, self.blocking = app, list[str](), list[str]()
        part: Any = self
        self.invoker = Invoker(app, {}, reporter=self.reporter, call_blocking=self.call, keeper=None, stopping=part)

    def reporter(self, attempt: LiveAttempt) -> Any:
        return lambda *_: None

    def stop(self, attempt: LiveAttempt, reason: str) -> None:
        self.stopped.append(f"{attempt.job.id} {reason}")

    async def call(self, attempt: LiveAttempt, function: Any) -> Any:
        self.blocking.append(attempt.job.id)
        return await asyncio.to_thread(function)

    async def attempt(self, job_id: str) -> LiveAttempt:
        """A claimed job."""
        store = await self.app.store()
        job = await store.run(claim.claim_one(job_id, "w", new_token(), 60.0))
        assert job is not None
        return LiveAttempt(job)

    async def run(self, task: Any, **given: Any) -> Any:
        """How the attempt of a new job ends."""
        attempt = await self.attempt((await task.enqueue(**given)).id)
        async with asyncio.timeout(LIMIT):
            return await self.invoker.call(attempt, task)


@pytest.fixture
def called(app: Rowlock) -> Called:
    return Called(app)


@on_one_engine
async def test_the_function_gets_its_arguments_and_what_it_returns_is_the_result(app: Rowlock, called: Called) -> None:
    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task
    async def nothing() -> None: ...

    assert await called.run(add, a=2) == Succeeded("3")
    assert await called.run(nothing) == Succeeded(None)
    assert called.blocking == []


@on_one_engine
async def test_a_function_that_is_not_async_is_called_where_it_blocks_nobody(app: Rowlock, called: Called) -> None:
    inside = contextvars.ContextVar("inside", default="nobody")

    @app.middleware
    async def around(ctx: Context, call_next: Any) -> Any:
        inside.set("a middleware")
        return await call_next()

    @app.task
    def work(ctx: Context) -> str:
        return f"{ctx.attempt} inside {inside.get()}"

    assert await called.run(work) == Succeeded('"1 inside a middleware"')
    assert len(called.blocking) == 1


@on_one_engine
async def test_stored_arguments_that_do_not_fit_are_refused_before_the_call(app: Rowlock, called: Called) -> None:
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    job = await work.enqueue(n=1)
    await execute(app, """UPDATE {t}jobs_live SET args = '{"n": "many"}' WHERE id = $1""", job.id)
    attempt = await called.attempt(job.id)
    with pytest.raises(ArgumentsMisfit, match="n"):
        await called.invoker.call(attempt, work)
    assert ran == []


@on_one_engine
async def test_a_result_that_is_no_json_is_refused_after_the_call(app: Rowlock, called: Called) -> None:
    @app.task
    async def work() -> Any:
        return object()

    with pytest.raises(InvalidResult, match="result of"):
        await called.run(work)


@on_one_engine
async def test_middlewares_stand_around_the_call_in_their_order(app: Rowlock, called: Called) -> None:
    seen: list[str] = []

    def layer(name: str) -> None:
        @app.middleware
        async def around(ctx: Context, call_next: Any) -> Any:
            seen.append(f"into {name}")
            try:
                return await call_next()
            finally:
                seen.append(f"out of {name}")

    for name in ("first", "second"):
        layer(name)

    @app.task
    async def work() -> None:
        seen.append("work")

    assert await called.run(work) == Succeeded(None)
    assert seen == ["into first", "into second", "work", "out of second", "out of first"]


@on_one_engine
async def test_a_handler_over_its_time_is_cancelled_also_if_it_swallows_that(app: Rowlock, called: Called) -> None:
    begun: list[str] = []

    @app.task(timeout=0.05)
    async def work(swallow: bool) -> str:
        begun.append("work")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallow:
                raise
        return "late"

    for swallow in (False, True):
        with pytest.raises(Overran, match=r"0\.05 s"):
            await called.run(work, swallow=swallow)
    assert begun == ["work", "work"]
    assert called.stopped == [], "both have ended by themselves"


@on_one_engine
async def test_a_time_limit_of_the_handlers_own_is_not_taken_for_the_timeout_of_its_task(
    app: Rowlock, called: Called
) -> None:
    @app.task(timeout=LIMIT)
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as raised:
        await called.run(work)
    assert not isinstance(raised.value, Overran)


async def test_the_success_is_written_in_the_handlers_own_transaction(app: Rowlock, called: Called) -> None:
    @app.task
    async def follow() -> None: ...

    @app.task
    async def work(ctx: Context) -> int:
        async with ctx.transaction():
            await follow.enqueue()
        return 7

    job = await work.enqueue()
    attempt = await called.attempt(job.id)
    assert await called.invoker.call(attempt, work) is None, "there is nothing left to settle"
    row = await row_of(app, job.id)
    assert (row["state"], row["result"]) == ("succeeded", 7)
    assert await count_jobs(app, "follow") == 1


async def test_a_transaction_of_an_attempt_that_lost_its_lease_is_undone(app: Rowlock, called: Called) -> None:
    @app.task
    async def follow() -> None: ...

    @app.task
    async def work(ctx: Context) -> None:
        async with ctx.transaction():
            await follow.enqueue()

    job = await work.enqueue()
    held = await called.attempt(job.id)
    stale = LiveAttempt(held.job._replace(token=new_token()))
    with pytest.raises(LeaseLost):
        await called.invoker.call(stale, work)
    assert ((await row_of(app, job.id))["state"], await count_jobs(app, "follow")) == ("running", 0)


async def test_a_child_of_an_attempt_that_lost_its_lease_is_not_enqueued(app: Rowlock, called: Called) -> None:
    @app.task
    async def child() -> None: ...

    refused = list[str]()

    @app.task
    async def work(ctx: Context) -> None:
        with pytest.raises(LeaseLost, match="its child job was not enqueued") as caught:
            await ctx.enqueue("child")
        refused.append(str(caught.value.job_id))

    job = await work.enqueue()
    held = await called.attempt(job.id)
    await called.invoker.call(LiveAttempt(held.job._replace(token=new_token())), work)
    assert (refused, await count_jobs(app, "child")) == ([job.id], 0)
