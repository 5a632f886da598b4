"""`ctx.transaction()`: what the handler writes commits with the job's success; follow-ups with the final state."""

import asyncio
from typing import Any

import pytest

from rowlock import Context, JobDead, Permanent, Rowlock, fixed
from support.contract_tasks import execute, fetch, lose_lease, row_of, until, working


@pytest.fixture
async def ledger(app: Rowlock) -> Rowlock:
    """The app, with a table of the user's own."""
    await execute(app, "CREATE TABLE ledger (n integer)")
    return app


async def entries(app: Rowlock) -> list[int]:
    return [row[0] for row in await fetch(app, "SELECT n FROM ledger ORDER BY n")]


async def test_effects_commit_with_the_success(ledger: Rowlock) -> None:
    @ledger.task
    async def book(ctx: Context, n: int) -> str:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ($1)", n)
        return "booked"

    async with working(ledger):
        job = await book.enqueue(n=7)
        assert await job.wait(timeout=10) == "booked"
    assert await entries(ledger) == [7]


async def test_a_handler_that_raises_inside_the_block_writes_nothing(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            raise RuntimeError("no")

    async with working(ledger):
        with pytest.raises(JobDead):
            await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == []


async def test_a_handler_that_raises_after_the_block_is_told_about_by_one_state_only(ledger: Rowlock) -> None:
    """Either the effects and the success are there, or neither: never effects of a failed job."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        raise RuntimeError("too late")

    async with working(ledger):
        job = await book.enqueue()

        async def final() -> bool:
            return (await ledger.job(job.id)).state in ("succeeded", "dead")

        await until(final)
    state = (await ledger.job(job.id)).state
    assert (state, await entries(ledger)) in [("succeeded", [1]), ("dead", [])]


async def test_a_lease_lost_meanwhile_takes_the_effects_with_it(ledger: Rowlock) -> None:
    """The zombie's writes roll back; those of the attempt that holds the lease stay (P4, P6)."""
    wrote, go = asyncio.Event(), asyncio.Event()

    @ledger.task(on_lost="retry")
    async def book(ctx: Context) -> int:
        if ctx.attempt == 1:
            wrote.set()
            await go.wait()
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ($1)", ctx.attempt)
        return ctx.attempt

    async with working(ledger, pool_size=2, sweep_seconds=3600):
        job = await book.enqueue()
        async with asyncio.timeout(10):
            await wrote.wait()
        await lose_lease(ledger, job.id)
        go.set()
        assert await job.wait(timeout=15) == 2
    assert await entries(ledger) == [2]
    row = await row_of(ledger, job.id)
    assert (row["attempt"], row["losses"]) == (2, 1)


async def test_a_second_block_in_one_handler_is_refused_or_both_commit_with_the_success(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (2)")
            raise RuntimeError("in the second")

    async with working(ledger):
        job = await book.enqueue()

        async def final() -> bool:
            return (await ledger.job(job.id)).state in ("succeeded", "dead")

        await until(final)
    state = (await ledger.job(job.id)).state
    assert (state, await entries(ledger)) in [("succeeded", [1]), ("dead", [])]


async def test_enqueue_inside_the_block_joins_it(ledger: Rowlock) -> None:
    @ledger.task
    async def follow(n: int) -> int:
        return n

    @ledger.task(max_attempts=1)
    async def book(ctx: Context, ok: bool) -> str:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            job = await follow.enqueue(n=5)
            also = await ctx.enqueue("follow", n=6)
            assert also.id != job.id
            if not ok:
                raise RuntimeError("no")
        return job.id

    async with working(ledger):
        with pytest.raises(JobDead):
            await (await book.enqueue(ok=False)).wait(timeout=10)
        assert await fetch(ledger, "SELECT count(*) FROM {t}jobs WHERE task = 'follow'") == [(0,)]
        child = await (await book.enqueue(ok=True)).wait(timeout=10)
        assert await (await ledger.job(child)).wait(timeout=10) == 5
    assert await entries(ledger) == [1]


async def test_a_thread_task_has_no_async_transaction_but_a_clear_word(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    def book(ctx: Context) -> None:
        ctx.transaction()

    async with working(ledger):
        with pytest.raises(JobDead, match="transaction"):
            await (await book.enqueue()).wait(timeout=10)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_on_sqlite_a_transaction_that_takes_too_long_is_rolled_back_with_a_clear_error(ledger: Rowlock) -> None:
    """It holds the only writer's place: longer than a third of a beat would stop every heartbeat."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            await asyncio.sleep(30)

    @ledger.task
    async def fine() -> str:
        return "fine"

    async with working(ledger, pool_size=2, heartbeat_seconds=0.6, lease_seconds=3.0):
        job = await book.enqueue()
        with pytest.raises(JobDead, match="transaction"):
            await job.wait(timeout=10)
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
    assert await entries(ledger) == []


# Follow-ups


async def test_on_success_is_written_with_the_success(app: Rowlock) -> None:
    seen: list[dict[str, Any]] = []

    @app.task
    async def celebrate(job_id: str, result: Any) -> None:
        seen.append({"job_id": job_id, "result": result})

    @app.task(on_success=celebrate)
    async def work(n: int) -> int:
        return n + 1

    async with working(app):
        job = await work.enqueue(n=1)
        await job.wait(timeout=10)
        await until(lambda: bool(seen))
    assert seen == [{"job_id": job.id, "result": 2}]


async def test_on_dead_is_written_with_the_death_and_only_then(app: Rowlock) -> None:
    seen: list[str] = []

    @app.task
    async def refund(job_id: str) -> None:
        seen.append(job_id)

    @app.task(max_attempts=2, backoff=fixed(seconds=0), on_dead=refund)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 2:
            assert await fetch(app, "SELECT count(*) FROM {t}jobs WHERE task = 'refund'") == [(0,)]
        raise RuntimeError("x")

    async with working(app):
        job = await work.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        # In the same transaction: whoever sees the death sees the follow-up.
        assert await fetch(app, "SELECT count(*) FROM {t}jobs WHERE task = 'refund'") == [(1,)]
        await until(lambda: bool(seen))
    assert seen == [job.id]


async def test_a_permanent_failure_and_an_expiry_also_have_their_follow_up(app: Rowlock) -> None:
    @app.task
    async def refund(job_id: str) -> None: ...

    @app.task(on_dead="refund")
    async def work() -> None:
        raise Permanent("no")

    async with working(app):
        with pytest.raises(JobDead):
            await (await work.enqueue()).wait(timeout=10)
    assert await fetch(app, "SELECT count(*) FROM {t}jobs WHERE task = 'refund'") == [(1,)]


async def test_a_retry_after_death_may_succeed_and_then_has_its_own_follow_up(app: Rowlock) -> None:
    ended: list[str] = []

    @app.task
    async def won(job_id: str) -> None:
        ended.append("won")

    @app.task
    async def lost(job_id: str) -> None:
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
    async def refund(job_id: str) -> None: ...

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
        assert await fetch(app, "SELECT count(*) FROM {t}jobs WHERE task = 'refund'") == [(1,)]
        hold.set()


async def test_an_unknown_follow_up_is_refused_when_the_task_is_used(app: Rowlock) -> None:
    @app.task(on_dead="refnud")
    async def work() -> None: ...

    @app.task
    async def refund(job_id: str) -> None: ...

    with pytest.raises(Exception, match="refnud"):
        await work.enqueue()
