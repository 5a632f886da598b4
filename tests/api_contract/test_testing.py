"""`rowlock.testing`: run a task inline, drain a queue, move the clock, assert what was enqueued; also as a plugin."""

from datetime import timedelta

import pytest

from rowlock import Context, InvalidArguments, Permanent, Rowlock, fixed
from rowlock.testing import run_inline, testing
from support.contract_tasks import count_jobs, row_of

pytest_plugins = ["pytester"]


async def test_a_task_runs_inline_with_a_context_and_without_a_job(app: Rowlock) -> None:
    @app.task
    async def enrich(ctx: Context, url: str) -> list[object]:
        await ctx.progress(40)
        return [url, ctx.attempt]

    assert await run_inline(enrich, url="u") == ["u", 1]
    assert await count_jobs(app) == 0
    with pytest.raises(InvalidArguments, match="url"):
        await run_inline(enrich, url=7)


async def test_inline_errors_are_those_of_the_task(app: Rowlock) -> None:
    @app.task
    async def fail() -> None:
        raise Permanent("no", code="HTTP_403")

    with pytest.raises(Permanent, match="no"):
        await run_inline(fail)


async def test_drain_runs_what_is_due_and_what_that_enqueues(app: Rowlock) -> None:
    ran: list[int] = []

    @app.task
    async def count(ctx: Context, n: int) -> None:
        ran.append(n)
        if n:
            await ctx.enqueue("count", n=n - 1)

    async with testing(app) as helper:
        await count.enqueue(n=3)
        await count.using(delay=60).enqueue(n=100)
        assert await helper.drain() == 4
        assert ran == [3, 2, 1, 0]


async def test_travel_moves_the_clock_of_the_database(app: Rowlock) -> None:
    @app.task
    async def work() -> None: ...

    async with testing(app) as helper:
        before = (await row_of(app, (await work.enqueue()).id))["created_at"]
        await helper.travel(hours=1)
        after = (await row_of(app, (await work.enqueue()).id))["created_at"]
    assert abs(after - before - timedelta(hours=1)) < timedelta(seconds=5)


async def test_asserts_about_what_was_enqueued(app: Rowlock) -> None:
    @app.task
    async def mail(to: str, copy: bool = False) -> None: ...

    @app.task
    async def other() -> None: ...

    async with testing(app) as helper:
        await mail.using(queue="post").enqueue(to="ana")
        await helper.assert_enqueued(mail)
        await helper.assert_enqueued(mail, to="ana")
        await helper.assert_enqueued("mail", to="ana")
        await helper.refute_enqueued(other)
        await helper.refute_enqueued(mail, to="bo")
        with pytest.raises(AssertionError, match="mail"):
            await helper.assert_enqueued(mail, to="bo")
        with pytest.raises(AssertionError, match="mail"):
            await helper.refute_enqueued(mail, to="ana")
        with pytest.raises(AssertionError, match="other"):
            await helper.assert_enqueued(other)


async def test_failures_in_drain_are_seen_or_kept_as_asked(app: Rowlock) -> None:
    @app.task(max_attempts=2, backoff=fixed(minutes=5))
    async def fail() -> None:
        raise RuntimeError("x")

    async with testing(app) as helper:
        job = await fail.enqueue()
        await helper.drain()
        assert (await app.job(job.id)).state == "retryable"
        await helper.travel(minutes=7)
        await helper.drain()
        assert (await app.job(job.id)).state == "dead"


def test_the_plugin_gives_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        tasks="""
        from rowlock import Rowlock

        app = Rowlock("sqlite:///unused.db")

        @app.task
        async def greet(name: str) -> str:
            return f"hello {name}"
        """,
        test_user="""
        import pytest
        from tasks import app, greet

        @pytest.fixture
        def rowlock_app():
            return app

        async def test_greet(rowlock_testing):
            job = await greet.enqueue(name="ana")
            await rowlock_testing.assert_enqueued(greet, name="ana")
            await rowlock_testing.drain()
            assert (await app.job(job.id)).result == "hello ana"

        async def test_clean(rowlock_testing):
            await rowlock_testing.refute_enqueued(greet)
        """,
    )
    result = pytester.runpytest_subprocess("-q", "-o", "asyncio_mode=auto", "-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(passed=2)
