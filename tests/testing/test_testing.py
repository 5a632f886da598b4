"""`rowlock.testing`: run a task inline, drain a queue, move the clock, assert what was enqueued; also as a plugin."""

from datetime import UTC, datetime, timedelta

import pytest

import rowlock.testing
from rowlock import Context, InvalidArguments, Permanent, Rowlock, fixed
from support.tasks.contract import count_jobs, frozen, row_of, working


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_task_runs_inline_with_a_context_and_without_a_job(app: Rowlock) -> None:
    @app.task
    async def enrich(ctx: Context, url: str, at: datetime) -> list[object]:
        await ctx.progress(40, phase="fetch", message="reading")
        return [url, at, ctx.attempt, ctx.resources["http"]]

    @app.task
    def double(n: int) -> int:
        return 2 * n

    at = datetime(2026, 8, 1, tzinfo=UTC)
    ran = await rowlock.testing.run(enrich, url="u", at=at, attempt=3, resources={"http": "session"})
    assert ran.value == ["u", at, 3, "session"]
    assert ran.progress == [(40, "fetch", "reading")]
    assert (await rowlock.testing.run(double, n=4)).value == 8
    assert await count_jobs(app) == 0
    with pytest.raises(InvalidArguments, match="url"):
        await rowlock.testing.run(enrich, url=7, at=at)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_inline_errors_are_those_of_the_task(app: Rowlock) -> None:
    @app.task
    async def fail() -> None:
        raise Permanent("no", code="HTTP_403")

    with pytest.raises(Permanent, match="no"):
        await rowlock.testing.run(fail)


async def test_drain_runs_what_is_due_and_what_that_enqueues(app: Rowlock, app_url: str) -> None:
    ran: list[int] = []

    @app.task
    async def count(ctx: Context, n: int) -> None:
        ran.append(n)
        if n:
            await ctx.enqueue("count", n=n - 1)

    async with frozen(app, app_url) as helper:
        await count.enqueue(n=3)
        later = await count.using(delay=60).enqueue(n=100)
        finished = await helper.drain()
        assert ran == [3, 2, 1, 0]
        assert [job.args["n"] for job in finished] == [3, 2, 1, 0]
        assert (await app.job(later.id)).state == "queued"
        assert await helper.drain() == [], "what an earlier drain finished is not told again"


async def test_drain_serves_the_queues_of_the_tasks(app: Rowlock, app_url: str) -> None:
    @app.task(queue="links")
    async def work(n: int) -> int:
        return n

    async with frozen(app, app_url) as helper:
        await work.enqueue(n=1)
        await work.using(queue="other").enqueue(n=2)
        assert [job.result for job in await helper.drain()] == [1]
        assert [job.result for job in await helper.drain(queues=["other"])] == [2]


async def test_travel_moves_the_clock_of_the_database(app: Rowlock, app_url: str) -> None:
    @app.task
    async def work() -> None: ...

    async with frozen(app, app_url) as helper:
        before = (await row_of(app, (await work.enqueue()).id))["created_at"]
        await helper.travel(hours=1, minutes=2, seconds=3)
        await helper.travel(timedelta(seconds=1))
        after = (await row_of(app, (await work.enqueue()).id))["created_at"]
    assert after - before == timedelta(hours=1, minutes=2, seconds=4)


async def test_assert_and_refute_enqueued_compare_the_task_and_its_arguments(app: Rowlock, app_url: str) -> None:
    @app.task
    async def mail(to: str, copy: bool = False) -> None: ...

    @app.task
    async def other() -> None: ...

    async with frozen(app, app_url) as helper:
        job = await mail.using(queue="post").enqueue(to="ana")
        assert (await helper.assert_enqueued(mail)).id == job.id
        await helper.assert_enqueued(mail, to="ana")
        await helper.assert_enqueued("mail", to="ana")
        await helper.refute_enqueued(other)
        await helper.refute_enqueued(mail, to="bo")
        with pytest.raises(AssertionError, match=r"mail.*bo.*ana"):  # what was wanted and what there is
            await helper.assert_enqueued(mail, to="bo")
        with pytest.raises(AssertionError, match="mail"):
            await helper.refute_enqueued(mail, to="ana")
        with pytest.raises(AssertionError, match="other"):
            await helper.assert_enqueued(other)


async def test_a_failed_job_waits_for_its_backoff_until_the_test_moves_its_clock(app: Rowlock, app_url: str) -> None:
    @app.task(max_attempts=2, backoff=fixed(minutes=5))
    async def fail() -> None:
        raise RuntimeError("x")

    async with frozen(app, app_url) as helper:
        job = await fail.enqueue()
        await helper.drain()
        assert (await app.job(job.id)).state == "retryable"
        await helper.travel(minutes=7)
        await helper.drain()
        assert (await app.job(job.id)).state == "dead"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_block_has_a_database_of_its_own_and_leaves_the_app_as_it_was(app: Rowlock) -> None:
    @app.task
    async def work() -> int:
        return 1

    before = await work.enqueue()
    async with rowlock.testing.testing(app) as helper:
        await helper.refute_enqueued(work)
        await work.enqueue()
        assert len(await helper.drain()) == 1
    assert await count_jobs(app) == 1
    async with working(app):
        assert await before.wait(timeout=10) == 1


USERS_TESTS = """
    import pytest
    from rowlock import Rowlock
    from rowlock.testing import run, testing

    app = Rowlock("sqlite:///unused.db")

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def test_drain(rowlock_testing):
        async with rowlock_testing(app) as t:
            job = await greet.enqueue(name="ana")
            await t.assert_enqueued(greet, name="ana")
            await t.drain()
            assert (await app.job(job.id)).result == "hello ana"

    async def test_each_test_has_its_own_database(rowlock_testing):
        async with rowlock_testing(app) as t:
            await t.refute_enqueued(greet)

    async def test_without_the_plugin():
        async with testing(app) as t:
            await greet.enqueue(name="bo")
            assert len(await t.drain()) == 1
        assert (await run(greet, name="bo")).value == "hello bo"
"""


def test_the_plugin_and_the_helpers_in_a_users_test_file(pytester: pytest.Pytester) -> None:
    """Nothing but the user's three tests is collected: the name `testing` is not taken for a test."""
    pytester.makepyfile(test_user=USERS_TESTS)
    # Plugins of others take longer to load than these tests run. Rowlock's own is found as a user's pytest finds it.
    others = ("randomly", "xdist", "cacheprovider", "schemathesis", "hypothesispytest", "valkey", "anyio", "timeout")
    without = [word for name in others for word in ("-p", f"no:{name}")]
    result = pytester.runpytest_subprocess("-o", "asyncio_mode=auto", *without)
    result.assert_outcomes(passed=3)
    assert not (pytester.path / "unused.db").exists()
