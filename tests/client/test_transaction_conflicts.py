"""`ctx.transaction()` meets another transaction: a serialization failure or a deadlock costs the job no try."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from rowlock import Context, Rowlock, StoreError, TransactionConflict
from support.each import each
from support.sql.ledger import empty, entries
from support.tasks.contract import in_state, row_of, working

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

STRICT = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"


async def elsewhere(app: Rowlock, sql: str) -> None:
    """Commit a statement in a transaction of another program."""
    async with Rowlock(app.settings.database) as other, other.transaction() as tx:
        await tx.execute(sql)


async def meet(app: Rowlock, tx: Any) -> None:
    """Update a row that another transaction has updated since this one began."""
    await tx.fetch("SELECT n FROM ledger")
    await asyncio.create_task(elsewhere(app, "UPDATE ledger SET n = n"))
    await tx.execute("UPDATE ledger SET n = n + 10")


@each("when", ["passed", "caught", "grouped", "second block"])
async def test_a_job_whose_transaction_met_a_serialization_failure_is_given_back_and_uses_no_try(
    ledger: Rowlock, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    await empty(ledger)
    caplog.set_level(logging.WARNING, "rowlock")
    caplog.clear()
    told: list[BaseException] = []
    ledger.on_error(lambda ctx, error: told.append(error))

    @ledger.task(f"book {when}", max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(STRICT)
            if ctx.attempt > 1 or when == "second block":
                await tx.fetch("SELECT n FROM ledger")
            elif when == "caught":
                with suppress(StoreError):
                    await meet(ledger, tx)
            elif when == "grouped":
                async with asyncio.TaskGroup() as group:
                    group.create_task(meet(ledger, tx))
            else:
                await meet(ledger, tx)
        if when == "second block" and ctx.attempt == 1:
            async with ctx.transaction() as tx:
                await meet(ledger, tx)

    async with ledger.transaction() as tx:
        await tx.execute("INSERT INTO ledger VALUES (1)")
    async with working(ledger):
        job = await book.enqueue()
        assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
    row = await row_of(ledger, job.id)
    assert (row["attempt"], row["releases"]) == (2, 1)
    assert (await entries(ledger), told) == ([1], [])
    assert f"Job {job.id} (book {when}) starts again" in caplog.text
    assert "could not serialize access" in caplog.text


async def test_of_two_jobs_that_deadlock_both_succeed_in_their_only_try(ledger: Rowlock) -> None:
    both = asyncio.Barrier(2)

    @ledger.task(max_attempts=1)
    async def book(ctx: Context, first: int, second: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("UPDATE pair SET by = by + 1 WHERE n = $1", first)
            if ctx.attempt == 1:
                await both.wait()
            await tx.execute("UPDATE pair SET by = by + 1 WHERE n = $1", second)

    async with ledger.transaction() as tx:
        await tx.execute("CREATE TABLE pair AS SELECT n, 0 AS by FROM generate_series(1, 2) n")
    try:
        async with working(ledger):
            jobs = [await book.enqueue(first=1, second=2), await book.enqueue(first=2, second=1)]
            for job in jobs:
                assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
        rows = [await row_of(ledger, job.id) for job in jobs]
        assert sorted((row["attempt"], row["releases"]) for row in rows) == [(1, 0), (2, 1)]
        assert [tuple(row) for row in await ledger.fetch("SELECT by FROM pair")] == [(2,), (2,)]
    finally:
        async with ledger.transaction() as tx:
            await tx.execute("DROP TABLE pair")


async def test_a_key_that_was_taken_out_of_sight_of_the_transaction_gives_the_job_back(ledger: Rowlock) -> None:
    @ledger.task
    async def report() -> None: ...

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(STRICT)
            await tx.fetch("SELECT n FROM ledger")
            if ctx.attempt == 1:
                await asyncio.create_task(_take_key(ledger.settings.database))
            assert not (await report.using(key="one", delay=60).enqueue()).created

    async with working(ledger):
        job = await book.enqueue()
        assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
    row = await row_of(ledger, job.id)
    assert (row["attempt"], row["releases"]) == (2, 1)


async def _take_key(url: str) -> None:
    async with Rowlock(url) as other:

        @other.task
        async def report() -> None: ...

        await report.using(key="one", delay=60).enqueue()


async def test_a_conflict_of_the_commit_itself_gives_the_job_back(ledger: Rowlock) -> None:
    """Two transactions read what the other writes: PostgreSQL refuses the second commit, and no statement before it."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("SET CONSTRAINTS ALL DEFERRED")
            await tx.execute("INSERT INTO deferred VALUES ($1)", ctx.attempt)

    async with ledger.transaction() as tx:
        await tx.execute("CREATE TABLE deferred (n int)")
        await tx.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.n = 1 THEN RAISE 'lost to another transaction' USING ERRCODE = 'serialization_failure'; END IF;"
            " RETURN NULL; END $$"
        )
        await tx.execute(
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    try:
        async with working(ledger):
            job = await book.enqueue()
            assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
        row = await row_of(ledger, job.id)
        assert (row["attempt"], row["releases"]) == (2, 1)
        assert [tuple(found) for found in await ledger.fetch("SELECT n FROM deferred")] == [(2,)]
    finally:
        async with ledger.transaction() as tx:
            await tx.execute("DROP TABLE deferred")
            await tx.execute("DROP FUNCTION refuse")


async def test_jobs_with_serializable_transactions_side_by_side_all_succeed_in_their_only_try(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(STRICT)
            await tx.execute("INSERT INTO ledger VALUES ($1)", n)

    async with working(ledger):
        jobs = await book.enqueue_many([{"n": n} for n in range(16)])
        for job in jobs:
            assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
    assert sorted(await entries(ledger)) == list(range(16))


async def test_a_conflict_in_a_transaction_of_the_app_says_to_run_it_again(ledger: Rowlock) -> None:
    async with ledger.transaction() as tx:
        await tx.execute("INSERT INTO ledger VALUES (1)")
    with pytest.raises(TransactionConflict, match=r"could not serialize access .*; run the transaction again"):
        async with ledger.transaction() as tx:
            await tx.execute(STRICT)
            await meet(ledger, tx)


async def test_another_error_of_a_handler_after_a_conflict_that_it_caught_uses_its_try(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(STRICT)
            await tx.execute("INSERT INTO ledger VALUES (2)")
        with suppress(TransactionConflict):
            async with ctx.transaction() as tx:
                await meet(ledger, tx)
        raise ValueError("the handler's own")

    async with ledger.transaction() as tx:
        await tx.execute("INSERT INTO ledger VALUES (1)")
    async with working(ledger):
        job = await book.enqueue()
        await in_state(ledger, job.id, "dead")
    assert (await row_of(ledger, job.id))["error_code"] == "ValueError"


async def test_a_batch_does_not_end_in_a_transaction_that_cannot_see_the_jobs_added_to_it(ledger: Rowlock) -> None:
    async with ledger.batch("b") as batch:
        async with ledger.transaction() as tx:
            await tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await tx.fetch("SELECT 1 FROM rowlock.batches")  # from now on it sees nothing new
            await asyncio.create_task(_add(ledger.settings.database, batch.id))
            await batch.seal()
        ((state,),) = await ledger.fetch("SELECT state FROM rowlock.batches WHERE id = $1", batch.id)
        assert state == "queued", "it ended with a job that waits"


async def _add(url: str, batch: str) -> None:
    async with Rowlock(url) as other:

        @other.task
        async def one() -> None: ...

        await one.using(batch=batch).enqueue()
