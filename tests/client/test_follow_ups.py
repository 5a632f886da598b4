"""Follow-up jobs: written in the transaction that writes the final state, and only then."""

import asyncio

import pytest

from rowlock import (
    Context,
    Finished,
    InvalidArguments,
    JobDead,
    Permanent,
    Rowlock,
    fixed,
)
from support.sql.ledger import entries
from support.tasks.contract import (
    count_jobs,
    lose_lease,
    row_of,
    rows_of,
    until,
    working,
)


async def test_on_success_is_written_with_the_success(app: Rowlock) -> None:
    seen: list[Finished] = []

    @app.task
    async def celebrate(finished: Finished) -> None:
        seen.append(finished)

    @app.task(on_success=celebrate)
    async def work(n: int) -> int:
        return n + 1

    async with working(app):
        job = await work.using(owner="ana").enqueue(n=1)
        await job.wait(timeout=10)
        # In the same transaction: whoever sees the success sees the follow-up.
        (follow,) = await rows_of(app, task="celebrate")
        await until(lambda: bool(seen))
    (finished,) = seen
    assert (finished["job_id"], finished["result"], finished["state"]) == (job.id, 2, "succeeded")
    assert (finished["task"], finished["args"], finished["attempt"]) == ("work", {"n": 1}, 1)
    assert follow["owner"] == "ana"


async def test_on_dead_is_written_with_the_death_and_only_then(app: Rowlock) -> None:
    seen: list[Finished] = []

    @app.task
    async def refund(finished: Finished) -> None:
        seen.append(finished)

    @app.task(max_attempts=2, backoff=fixed(seconds=0.01), on_dead=refund)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 2:
            assert await count_jobs(app, "refund") == 0
        raise RuntimeError("the tap is closed")

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        # In the same transaction: whoever sees the death sees the follow-up.
        assert await count_jobs(app, "refund") == 1
        await until(lambda: bool(seen))
    (finished,) = seen
    assert (finished["job_id"], finished["state"], finished["attempt"]) == (job.id, "dead", 2)
    assert finished["error_code"] == "RuntimeError"
    assert "the tap is closed" in str(finished["error_message"])


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_permanent_failure_has_its_follow_up_also_by_name(app: Rowlock) -> None:
    @app.task
    async def refund(finished: Finished) -> None: ...

    @app.task(on_dead="refund")
    async def work() -> None:
        raise Permanent("no")

    async with working(app):
        with pytest.raises(JobDead):
            await (await work.enqueue()).wait(timeout=10)
    assert await count_jobs(app, "refund") == 1


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_retry_after_death_may_succeed_and_then_has_its_own_follow_up(app: Rowlock) -> None:
    ended: list[str] = []

    @app.task
    async def won(finished: Finished) -> None:
        ended.append("won")

    @app.task
    async def lost(finished: Finished) -> None:
        ended.append("lost")

    @app.task(max_attempts=1, on_success=won, on_dead=lost)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("x")

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        await app.retry(job.id)
        await job.wait(timeout=10)
        await until(lambda: len(ended) == 2)
    assert ended == ["lost", "won"]


async def test_reclaim_writes_the_on_dead_follow_up(app: Rowlock) -> None:
    """Whoever writes the final state: here the sweeper, for a task that must not run twice."""
    started, hold = asyncio.Event(), asyncio.Event()

    @app.task
    async def refund(finished: Finished) -> None: ...

    @app.task(on_lost="dead", on_dead=refund)
    async def once() -> None:
        started.set()
        await hold.wait()

    async with working(app, sweep_seconds=3600):
        job = await once.enqueue()
        async with asyncio.timeout(10):
            await started.wait()
        await lose_lease(app, job.id)
        row = await row_of(app, job.id)
        assert row["state"] == "dead"
        assert await count_jobs(app, "refund") == 1
        hold.set()


async def test_a_follow_up_is_given_the_largest_arguments_and_result(app: Rowlock) -> None:
    seen: list[int] = []

    @app.task
    async def celebrate(finished: Finished) -> None:
        seen.append(len(str(finished["args"])) + len(str(finished["result"])))

    @app.task(on_success=celebrate)
    async def work(text: str) -> str:
        return "y" * (64 * 1024 - 2)

    async with working(app):
        await (await work.enqueue(text="x" * (256 * 1024 - 11))).wait(timeout=10)
        await until(lambda: bool(seen))
    assert seen[0] > 300 * 1024


async def test_the_follow_up_of_a_transaction_commits_with_it(ledger: Rowlock) -> None:
    @ledger.task
    async def celebrate(finished: Finished) -> None: ...

    @ledger.task(on_success=celebrate)
    async def book(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        return 5

    async with working(ledger):
        assert await (await book.enqueue()).wait(timeout=10) == 5
        assert await count_jobs(ledger, "celebrate") == 1
    assert await entries(ledger) == [1]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_follow_up_that_takes_other_arguments_is_refused_before_anything_is_written(app: Rowlock) -> None:
    @app.task
    async def refund(order: int) -> None: ...

    async def nothing() -> None: ...

    with pytest.raises(InvalidArguments, match="refund"):
        app.task("work", on_dead=refund)(nothing)
    with pytest.raises(InvalidArguments, match="refund"):  # known by its name only when it is needed
        await app.task("work", on_dead="refund")(nothing).enqueue()
    assert await count_jobs(app) == 0
