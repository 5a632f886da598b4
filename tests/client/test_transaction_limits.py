"""A transaction whose connection breaks, or that takes more than it may: what becomes of its job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from rowlock import Context, JobDead, Rowlock, StoreError, StoreUnavailable
from rowlock.core.config import Settings, WorkerSettings
from rowlock.core.config.sections import TransactionSettings
from support.each import each
from support.sql.ledger import empty, entries
from support.tasks.contract import attempts_of, execute, in_state, row_of, until, working

on_postgres = pytest.mark.parametrize("engine", ["postgres"])


@pytest.fixture
def limits() -> dict[str, Any]:
    return {}


@pytest.fixture
async def ledger(app_url: str, limits: dict[str, Any]) -> AsyncIterator[Rowlock]:
    """An app with these limits, and with a table of the user's own."""
    worker = WorkerSettings(heartbeat_seconds=3, lease_seconds=12)
    settings = Settings(database=app_url, worker=worker, transactions=TransactionSettings(**limits))
    async with Rowlock(settings=settings) as app:
        await execute(app, "CREATE TABLE ledger (n integer)")
        yield app


def limited(**limits: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("limits", [limits])


async def backend(tx: Any) -> int:
    ((pid,),) = await tx.fetch("SELECT pg_backend_pid()")
    return int(pid)


async def gone(app: Rowlock, pid: int) -> None:
    """Wait until the server has no such backend any more."""

    async def ended() -> bool:
        store = await app.store()
        return not await store.fetch("SELECT 1 FROM pg_stat_activity WHERE pid = $1", pid)

    await until(ended)


async def end(app: Rowlock, pid: int) -> None:
    await (await app.store()).fetch("SELECT pg_terminate_backend($1)", pid)
    await gone(app, pid)


# A connection that breaks


@on_postgres
@each("when", ["inside", "after", "caught", "grouped", "second"])
async def test_a_job_whose_transaction_broke_is_given_back_and_uses_no_try(ledger: Rowlock, when: str) -> None:
    await empty(ledger)
    told: list[BaseException] = []
    ledger.on_error(lambda ctx, error: told.append(error))

    async def write(tx: Any) -> None:
        await tx.execute("INSERT INTO ledger VALUES (1)")

    @ledger.task(f"break {when}", max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await write(tx)
            if ctx.attempt == 1:
                if when != "second":
                    await end(ledger, await backend(tx))
                if when == "inside":
                    await write(tx)
                elif when == "caught":
                    with suppress(StoreUnavailable):
                        await write(tx)
                elif when == "grouped":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(write(tx))
        if when == "second" and ctx.attempt == 1:
            async with ctx.transaction() as tx:
                await end(ledger, await backend(tx))
                await write(tx)

    async with working(ledger):
        job = await book.enqueue()
        assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
    assert await entries(ledger) == [1]
    row = await row_of(ledger, job.id)
    assert (row["attempt"], row["releases"]) == (2, 1)
    assert await attempts_of(ledger, job.id) == [(1, "released", None)]
    assert told == []


@on_postgres
async def test_a_success_never_lacks_the_blocks_before_the_one_that_broke(ledger: Rowlock) -> None:
    """The handler tries its second block again on its own: a new transaction would be without the first."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            pid = await backend(tx)
        if ctx.attempt == 1:
            await end(ledger, pid)
        for _ in range(2):
            with suppress(StoreError):
                async with ctx.transaction() as tx:
                    await tx.execute("INSERT INTO ledger VALUES (2)")
                break

    async with working(ledger):
        await in_state(ledger, (await book.enqueue()).id, "succeeded", "dead")
    assert await entries(ledger) == [1, 2]


@on_postgres
async def test_a_handler_may_try_its_first_block_again_after_its_connection_broke(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> int:
        with pytest.raises(StoreUnavailable):
            async with ctx.transaction() as tx:
                await end(ledger, await backend(tx))
                await tx.execute("INSERT INTO ledger VALUES (1)")
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (2)")
        return ctx.attempt

    async with working(ledger):
        assert await (await book.enqueue()).wait(timeout=10) == 1
    assert await entries(ledger) == [2]


@on_postgres
async def test_what_a_handler_makes_of_a_broken_connection_is_its_own_failure(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await end(ledger, await backend(tx))
            try:
                await tx.execute("INSERT INTO ledger VALUES (1)")
            except StoreUnavailable as error:
                raise RuntimeError("half of it is out in the world") from error

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match="half of it"):
            await job.wait(timeout=10)


@on_postgres
async def test_an_outage_that_is_not_of_its_own_transaction_uses_up_a_try(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        raise StoreUnavailable("another database is gone")

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match="another database"):
            await job.wait(timeout=10)
    assert await entries(ledger) == []


@on_postgres
async def test_a_job_that_breaks_its_connection_again_and_again_uses_up_its_tries(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await end(ledger, await backend(tx))
            await tx.execute("INSERT INTO ledger VALUES (1)")

    job = await book.enqueue()
    await execute(
        ledger, "UPDATE {t}jobs_live SET attempt = 10, releases = 10, disconnects_in_row = 10 WHERE id = $1", job.id
    )
    async with working(ledger):
        with pytest.raises(JobDead, match="StoreUnavailable"):
            await job.wait(timeout=10)


@on_postgres
async def test_snoozes_are_not_counted_when_a_connection_breaks(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            if ctx.attempt == 1001:
                await end(ledger, await backend(tx))
            await tx.execute("INSERT INTO ledger VALUES ($1)", ctx.attempt)

    job = await book.enqueue()
    await execute(ledger, "UPDATE {t}jobs_live SET attempt = 1000, releases = 1000 WHERE id = $1", job.id)
    async with working(ledger):
        assert await in_state(ledger, job.id, "succeeded", "dead") == "succeeded"
    assert await entries(ledger) == [1002]


# How many


@on_postgres
async def test_every_slot_may_have_its_transaction_at_the_same_time(ledger: Rowlock) -> None:
    slots = 24  # more than the twenty that a process has without workers
    together = asyncio.Barrier(slots)

    @ledger.task(max_attempts=1)
    async def book(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ($1)", n)
            await together.wait()

    async with working(ledger, pool_size=1):  # of two workers in a process the larger counts
        pass
    async with working(ledger, pool_size=slots):
        jobs = [await book.enqueue(n=n) for n in range(slots)]
        for job in jobs:
            await job.wait(timeout=10)
    assert await entries(ledger) == list(range(slots))


@on_postgres
@limited(connections=1, wait_seconds=0.2)
async def test_a_job_that_finds_no_connection_free_is_given_back_and_told_which_setting_it_is(
    ledger: Rowlock,
) -> None:
    held, go = asyncio.Event(), asyncio.Event()

    @ledger.task(max_attempts=1)
    async def hold(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            held.set()
            await go.wait()

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (2)")

    async with working(ledger, pool_size=2):
        first = await hold.enqueue()
        await held.wait()
        with pytest.raises(StoreUnavailable, match=r"all 1 connections .* 0\.2 s; .* transactions\.connections"):
            async with ledger.transaction():
                pass
        second = await book.enqueue()
        await until(lambda: given_back(ledger, second.id))
        (attempt,) = await ledger.attempts(second.id)
        assert "transactions.connections" in str(attempt.error_message)
        go.set()
        await first.wait(timeout=10)
        await second.wait(timeout=10)
    assert await entries(ledger) == [1, 2]


async def given_back(app: Rowlock, job_id: str) -> bool:
    return bool(await app.attempts(job_id))


# How long


@on_postgres
@limited(idle_seconds=0.3)
@each("where", ["inside", "after"])
async def test_a_transaction_left_without_a_statement_is_rolled_back_with_an_error_that_names_the_setting(
    ledger: Rowlock, where: str
) -> None:
    @ledger.task(f"idle {where}", max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            pid = await backend(tx)
            await tx.execute("INSERT INTO ledger VALUES (1)")
            if where == "inside":
                await gone(ledger, pid)
                await tx.execute("INSERT INTO ledger VALUES (2)")
        await gone(ledger, pid)

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match=r"without a statement for 0\.3 s .* transactions\.idle_seconds"):
            await job.wait(timeout=10)
    assert (await row_of(ledger, job.id))["error_code"] == "TransactionTooLong"
    assert await entries(ledger) == []


@on_postgres
@limited(idle_seconds=2)
async def test_a_transaction_in_use_lives_longer_than_it_may_be_left_alone(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            for n in range(6):
                await tx.execute("INSERT INTO ledger VALUES ($1)", n)
                await asyncio.sleep(0.4)

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=15)
    assert await entries(ledger) == [0, 1, 2, 3, 4, 5]


@on_postgres
@limited(idle_seconds=0.5)
async def test_a_long_statement_is_no_idle_transaction_to_those_that_wait_for_it(ledger: Rowlock) -> None:
    async with ledger.transaction() as tx:
        await asyncio.gather(tx.execute("SELECT pg_sleep(1)"), tx.execute("INSERT INTO ledger VALUES (1)"))
    assert await entries(ledger) == [1]


@on_postgres
@limited(statement_seconds=0.2)
async def test_a_statement_that_takes_too_long_is_a_failure_that_names_the_setting(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("SELECT pg_sleep(60)")

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match=r"longer than 0\.2 s .* transactions\.statement_seconds"):
            await job.wait(timeout=10)
    with pytest.raises(StoreError, match=r"transactions\.statement_seconds"):
        await ledger.fetch("SELECT pg_sleep(60)")


@on_postgres
async def test_a_statement_that_the_server_cancels_is_a_failure(ledger: Rowlock) -> None:
    """A limit of the role or of the database: it would be met again at every try."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("SET LOCAL statement_timeout = '50ms'")
            await tx.execute("SELECT pg_sleep(60)")

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match="statement timeout"):
            await job.wait(timeout=10)


@limited(idle_seconds=0.5)
async def test_a_block_that_waits_for_a_task_that_waits_for_the_block_is_ended(ledger: Rowlock) -> None:
    @ledger.task
    async def follow() -> None: ...

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        opened = asyncio.Event()

        async def enqueue() -> None:
            await opened.wait()
            await follow.enqueue()

        enqueuing = asyncio.create_task(enqueue())  # before the block, so that it is not inside
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            opened.set()
            await enqueuing

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match="was rolled back"):
            await job.wait(timeout=10)
    assert (await row_of(ledger, job.id))["error_code"] == "TransactionTooLong"
    assert await entries(ledger) == []


@limited(idle_seconds=0.5)
async def test_parts_that_wait_for_each_other_without_a_pause_end_with_an_error(ledger: Rowlock) -> None:
    """One task makes statements without a pause; the other has a part, and waits in it for the first."""
    done = asyncio.Event()
    with pytest.raises(Exception, match=r"TaskGroup|rolled back|ended"):
        async with asyncio.timeout(60), ledger.transaction() as tx, asyncio.TaskGroup() as tasks:

            async def first() -> None:
                await tx.fetch("SELECT 1")
                await tx.fetch("SELECT 1")
                await tx.execute("SELECT 2")
                done.set()

            async def second() -> None:
                async with ledger.transaction():
                    await done.wait()

            tasks.create_task(first())
            tasks.create_task(second())
    assert not done.is_set()
