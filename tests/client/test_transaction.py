"""`ctx.transaction()` and `app.transaction()`: what is written in the block commits together, or not at all."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from rowlock import (
    BatchNotFound,
    Context,
    InvalidArguments,
    JobCancelled,
    JobDead,
    JobNotFound,
    Rowlock,
)
from support.sql.ledger import entries
from support.tasks.contract import (
    count_jobs,
    execute,
    in_state,
    lose_lease,
    row_of,
    settings_for,
    working,
)


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


async def test_a_handler_that_raises_after_the_block_writes_nothing(ledger: Rowlock) -> None:
    """Effects commit with the job's success or not at all: there is no success here."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        raise RuntimeError("too late")

    async with working(ledger):
        with pytest.raises(JobDead, match="too late"):
            await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_result_that_cannot_be_stored_takes_the_effects_with_it(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        return object()

    async with working(ledger):
        with pytest.raises(JobDead, match="result"):
            await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == []


async def test_a_timeout_takes_the_effects_with_it(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1, timeout=0.2)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            await asyncio.sleep(60)

    @ledger.task
    async def fine() -> str:
        return "fine"

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead):
            await job.wait(timeout=10)
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"
    assert (await row_of(ledger, job.id))["error_code"] == "TIMEOUT"
    assert await entries(ledger) == []


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


async def test_a_cancel_takes_the_effects_with_it(app_url: str) -> None:
    """On SQLite the cancel waits for the rollback of the transaction, which may keep others from writing for 1 s."""
    async with Rowlock(settings=settings_for(app_url, heartbeat_seconds=0.5, lease_seconds=20)) as app:
        await execute(app, "CREATE TABLE ledger (n integer)")
        wrote = asyncio.Event()

        @app.task
        async def book(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES (1)")
            wrote.set()
            while not ctx.should_stop:
                await asyncio.sleep(0.01)

        async with working(app):
            job = await book.enqueue()
            async with asyncio.timeout(10):
                await wrote.wait()
            await app.cancel(job.id)
            with pytest.raises(JobCancelled):
                await job.wait(timeout=10)
        assert await entries(app) == []


async def test_two_blocks_in_one_handler_commit_together_with_the_success(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context, ok: bool) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (2)")
            if not ok:
                raise RuntimeError("in the second")

    async with working(ledger):
        with pytest.raises(JobDead):
            await (await book.enqueue(ok=False)).wait(timeout=10)
        assert await entries(ledger) == []
        await (await book.enqueue(ok=True)).wait(timeout=10)
    assert await entries(ledger) == [1, 2]


async def test_a_success_never_hides_a_block_that_was_undone(ledger: Rowlock) -> None:
    """The first block ended well, the second failed, the handler went on: a success must have the first's effects."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        with suppress(ValueError):
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES (2)")
                raise ValueError("only this part")
        return "done"

    async with working(ledger):
        state = await in_state(ledger, (await book.enqueue()).id, "succeeded", "dead")
    assert (state, await entries(ledger)) in [("succeeded", [1]), ("dead", [])]


async def test_a_handler_may_enqueue_after_its_block(ledger: Rowlock) -> None:
    """On SQLite the transaction holds the only writer's place until the handler returns: no deadlock with it."""

    @ledger.task
    async def follow() -> None: ...

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        await follow.enqueue()
        await ctx.enqueue("follow")

    async with working(ledger):
        job = await book.enqueue()
        await job.wait(timeout=20)
    assert await entries(ledger) == [1]
    assert await count_jobs(ledger, "follow") == 2


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
        assert await count_jobs(ledger, "follow") == 0
        child = await (await book.enqueue(ok=True)).wait(timeout=10)
        assert await (await ledger.job(child)).wait(timeout=10) == 5
    assert await entries(ledger) == [1]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_thread_task_that_opens_a_transaction_is_refused(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    def book(ctx: Context) -> None:
        asyncio.run(use(ctx))

    async def use(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async with working(ledger):
        with pytest.raises(JobDead, match="async handlers"):
            await (await book.enqueue()).wait(timeout=10)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_worker_with_a_shorter_heartbeat_than_the_settings_shortens_the_transactions_of_sqlite(
    app_url: str,
) -> None:
    async with Rowlock(app_url) as app:
        await execute(app, "CREATE TABLE ledger (n integer)")

        @app.task(max_attempts=1)
        async def book(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES (1)")
                opened.set()
                async with asyncio.timeout(60):
                    await undone.wait()
                await tx.execute("INSERT INTO ledger VALUES (2)")

        @app.task
        async def fine() -> None: ...

        opened, undone = asyncio.Event(), asyncio.Event()
        async with working(app, heartbeat_seconds=3, lease_seconds=12):
            job = await book.enqueue()
            await asyncio.wait_for(opened.wait(), 60)
            await (await fine.enqueue()).wait(timeout=60)  # only written when the transaction has been rolled back
            undone.set()
            with pytest.raises(JobDead, match="the transaction was open for 1 s and was rolled back"):
                await job.wait(timeout=60)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_on_sqlite_a_transaction_that_takes_too_long_is_rolled_back_with_a_clear_error(app_url: str) -> None:
    """It holds the only writer's place: longer than a third of a beat would stop every heartbeat."""
    async with Rowlock(settings=settings_for(app_url, heartbeat_seconds=3, lease_seconds=12)) as app:
        await execute(app, "CREATE TABLE ledger (n integer)")
        opened, others_done = asyncio.Event(), asyncio.Event()

        @app.task(max_attempts=1)
        async def book(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES (1)")
                opened.set()
                await others_done.wait()  # they can only run when this transaction has been rolled back
                await tx.execute("INSERT INTO ledger VALUES (2)")

        @app.task
        async def fine() -> str:
            return "fine"

        async with working(app, pool_size=2):
            job = await book.enqueue()
            await asyncio.wait_for(opened.wait(), 10)
            others = [await fine.enqueue() for _ in range(3)]
            assert [await other.wait(timeout=10) for other in others] == ["fine"] * 3
            others_done.set()
            with pytest.raises(JobDead, match="the transaction was open for 1 s and was rolled back"):
                await job.wait(timeout=10)
        assert await entries(app) == []


async def test_a_cancel_and_a_retry_are_part_of_the_transaction_around_them(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    job = await note.enqueue()
    with pytest.raises(RuntimeError):
        async with app.transaction():
            assert await app.cancel(job.id) == "cancelled"
            raise RuntimeError("changed my mind")
    assert (await app.job(job.id)).state == "queued"
    async with app.transaction():
        await app.cancel(job.id)
    assert (await app.job(job.id)).state == "cancelled"
    with pytest.raises(RuntimeError):
        async with app.transaction():
            await app.retry(job.id)
            raise RuntimeError("changed my mind")
    assert (await app.job(job.id)).state == "cancelled"


async def test_a_transaction_reads_the_job_that_it_has_enqueued(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    with pytest.raises(RuntimeError):
        async with app.transaction():
            job = await note.enqueue()
            assert (await app.job(job.id)).state == "queued"
            assert (await app.explain(job.id)).reason == "unserved"
            assert await app.attempts(job.id) == []
            assert [found.id for found in await app.jobs(state="queued")] == [job.id]
            assert [queue.queued for queue in (await app.stats()).queues] == [1]
            raise RuntimeError("changed my mind")
    with pytest.raises(JobNotFound):
        await app.job(job.id)


async def test_a_transaction_reads_the_state_of_a_job_that_it_has_retried(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    job = await note.enqueue()
    await app.cancel(job.id)
    with pytest.raises(RuntimeError):
        async with app.transaction():
            assert (await app.retry(job.id)).state == "queued"
            assert (await job.refresh()).state == "queued"
            raise RuntimeError("changed my mind")
    assert (await job.refresh()).state == "cancelled"


async def test_a_transaction_reads_the_batch_that_it_has_made(app: Rowlock) -> None:
    with pytest.raises(RuntimeError):
        async with app.transaction():
            async with app.batch("b") as batch:
                assert (await app.find_batch(batch.id)).name == "b"
            raise RuntimeError("changed my mind")
    with pytest.raises(BatchNotFound):
        await app.find_batch(batch.id)


async def test_a_transaction_reads_the_source_that_it_has_changed(app: Rowlock) -> None:
    with pytest.raises(RuntimeError):
        async with app.transaction():
            assert (await app.sources.set("api:a", concurrency=3)).concurrency == 3
            assert (await app.sources.pause("api:a")).enabled is False
            assert (await app.sources.resume("api:a")).enabled is True
            assert "api:a" in [source.name for source in await app.sources.list()]
            assert (await app.sources.reset("api:a")).policy.concurrency is None
            raise RuntimeError("changed my mind")
    with pytest.raises(InvalidArguments):
        await app.sources.get("api:a")


async def test_an_error_of_sql_in_a_batch_in_a_transaction_is_the_one_that_is_raised(app: Rowlock) -> None:
    with pytest.raises(Exception, match="no_such_table") as caught:
        async with app.transaction() as tx, app.batch("b"):
            await tx.execute("INSERT INTO no_such_table VALUES (1)")
    assert "aborted" not in str(caught.value)


async def test_a_batch_whose_block_raises_is_cancelled_in_the_transaction_around_it(app: Rowlock) -> None:
    async with app.transaction():
        with pytest.raises(ValueError, match="mine"):
            async with app.batch("b") as batch:
                raise ValueError("mine")
    assert (await batch.refresh()).state == "cancelled"
