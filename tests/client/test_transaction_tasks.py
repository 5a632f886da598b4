"""A handler with several asyncio tasks has one `ctx.transaction()`: its blocks take turns, and all of it joins."""

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from rowlock import Context, JobDead, NotAllowed, Rowlock, StoreError
from rowlock.client.context import loose_context
from rowlock.testing import run
from support.each import each
from support.sql.ledger import empty, entries
from support.tasks.contract import count_jobs, in_state, row_of, until, working

Spread = Callable[..., Awaitable[Any]]


async def write(ctx: Context, n: int, *, fail: bool = False) -> None:
    """A block that gives the others every chance to come between."""
    async with ctx.transaction() as tx:
        await asyncio.sleep(0)
        await tx.execute("INSERT INTO ledger VALUES ($1)", n)
        await asyncio.sleep(0.01)
        if fail:
            raise ValueError("only this block")


async def grouped(*work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)


# Blocks side by side


@each("spread", [asyncio.gather, grouped], ids=["gather", "group"])
async def test_blocks_side_by_side_all_commit_with_the_success(ledger: Rowlock, spread: Spread) -> None:
    await empty(ledger)

    @ledger.task(f"book with {spread.__name__}", max_attempts=1)
    async def book(ctx: Context) -> None:
        await spread(*(write(ctx, n) for n in range(5)))

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == [0, 1, 2, 3, 4]


@each("failing", [0, 2])
async def test_a_block_that_fails_beside_others_takes_none_of_them_along(ledger: Rowlock, failing: int) -> None:
    await empty(ledger)

    @ledger.task(f"book all but {failing}", max_attempts=1)
    async def book(ctx: Context) -> None:
        blocks = [write(ctx, n, fail=n == failing) for n in range(4)]
        ended = await asyncio.gather(*blocks, return_exceptions=True)
        assert [n for n, error in enumerate(ended) if error] == [failing]

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == [n for n in range(4) if n != failing]


async def test_an_enqueue_beside_a_block_that_fails_is_kept(ledger: Rowlock) -> None:
    """It is not part of the block, so that undoing the block must not undo it."""

    @ledger.task
    async def follow() -> None: ...

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        await write(ctx, 1)
        ended = await asyncio.gather(write(ctx, 2, fail=True), follow.enqueue(), return_exceptions=True)
        assert [isinstance(error, ValueError) for error in ended] == [True, False]

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == [1]
    assert await count_jobs(ledger, "follow") == 1


async def test_an_enqueue_may_come_while_the_first_block_opens(ledger: Rowlock) -> None:
    """On SQLite it would stand in line behind a transaction that ends when the handler does."""

    @ledger.task
    async def follow() -> None: ...

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        await asyncio.gather(write(ctx, 1), follow.enqueue(), ctx.enqueue(follow))

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=20)
    assert await entries(ledger) == [1]
    assert await count_jobs(ledger, "follow") == 2


async def test_a_block_may_wait_for_a_task_that_reads(ledger: Rowlock) -> None:
    """What was begun before the block is not in it: it reads what is committed, and waits for nobody."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        opened = asyncio.Event()

        async def read() -> int:
            await opened.wait()
            return len(await ledger.jobs()) + len(await ledger.fetch("SELECT n FROM ledger"))

        reading = asyncio.create_task(read())
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            opened.set()
            assert await reading == 1

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=20)
    assert await entries(ledger) == [1]


async def test_statements_of_one_block_may_be_gathered(ledger: Rowlock) -> None:
    @ledger.task
    async def follow() -> None: ...

    async with ledger.transaction() as tx:
        writes = [tx.execute("INSERT INTO ledger VALUES ($1)", n) for n in range(5)]
        await asyncio.gather(*writes, *(follow.enqueue() for _ in range(5)))
    assert await entries(ledger) == [0, 1, 2, 3, 4]
    assert await count_jobs(ledger, "follow") == 5


async def test_parts_of_one_transaction_side_by_side_are_undone_alone(ledger: Rowlock) -> None:
    async def part(n: int) -> None:
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ($1)", n)
            await asyncio.sleep(0.01)
            if n % 2:
                raise ValueError("only this part")

    async with ledger.transaction() as whole:
        await asyncio.gather(*map(part, range(6)), return_exceptions=True)
        await whole.execute("INSERT INTO ledger VALUES (9)")
    assert await entries(ledger) == [0, 2, 4, 9]


# Blocks inside of blocks


@each("waited", [False, True], ids=["same-task", "wait_for"])
async def test_a_block_inside_of_another_is_part_of_it_and_undone_alone(ledger: Rowlock, waited: bool) -> None:
    await empty(ledger)

    async def inner(ctx: Context, n: int) -> None:
        await (asyncio.wait_for(write(ctx, n, fail=n == 3), 5) if waited else write(ctx, n, fail=n == 3))

    @ledger.task("book and wait" if waited else "book", max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            await inner(ctx, 2)
            with suppress(ValueError):
                await inner(ctx, 3)
            await asyncio.gather(write(ctx, 4), write(ctx, 5))

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=20)
    assert await entries(ledger) == [1, 2, 4, 5]


async def test_the_outer_transaction_may_be_used_inside_of_the_inner_block(ledger: Rowlock) -> None:
    async with asyncio.timeout(20), ledger.transaction() as outer:
        with suppress(ValueError):
            async with ledger.transaction() as inner:
                await outer.execute("INSERT INTO ledger VALUES (1)")
                await inner.execute("INSERT INTO ledger VALUES (2)")
                raise ValueError("both are inside")
        await outer.execute("INSERT INTO ledger VALUES (3)")
    assert await entries(ledger) == [3]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_block_inside_of_a_transaction_of_the_app_is_refused_at_once(ledger: Rowlock) -> None:
    """One commits with the block, the other with the job: on SQLite the second would wait for the first."""

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ledger.transaction(), ctx.transaction():
            pass

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match=r"ctx\.transaction\(\) inside of app\.transaction\(\)"):
            await job.wait(timeout=20)


async def test_transactions_of_two_apps_may_be_open_at_once(ledger: Rowlock, tmp_path: Any) -> None:
    @ledger.task
    async def follow() -> None: ...

    async with Rowlock(f"sqlite:///{tmp_path}/other.db") as other, asyncio.timeout(20):
        with pytest.raises(ValueError, match="both"):
            async with ledger.transaction(), other.transaction():
                await follow.enqueue()
                raise ValueError("both")
        with pytest.raises(ValueError, match="both"):
            async with ledger.transaction(), ledger.transaction(), other.transaction(), other.transaction():
                await follow.enqueue()
                raise ValueError("both")
    assert await count_jobs(ledger) == 0


# Blocks in tasks of their own


@each("ok", [True, False])
async def test_what_follows_a_block_in_another_task_joins_its_transaction(ledger: Rowlock, ok: bool) -> None:
    """`wait_for`, `gather` and `create_task` run the block in a task with a copy of the context."""
    await empty(ledger)

    @ledger.task(f"follow a book that is {ok}")
    async def follow() -> None: ...

    @ledger.task(f"book {ok}", max_attempts=1)
    async def book(ctx: Context) -> None:
        await asyncio.wait_for(write(ctx, 1), 5)
        await follow.enqueue()
        await asyncio.create_task(write(ctx, 2))
        await ctx.enqueue(follow)
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (3)")
        assert await count_seen(ledger) == 3
        if not ok:
            raise RuntimeError("none of it")

    async with working(ledger):
        job = await book.enqueue()
        assert await in_state(ledger, job.id, "succeeded", "dead") == ("succeeded" if ok else "dead")
        assert (await row_of(ledger, job.id))["error_code"] == (None if ok else "RuntimeError")
    assert await entries(ledger) == ([1, 2, 3] if ok else [])
    assert await count_jobs(ledger, follow.name) == (2 if ok else 0)


async def count_seen(app: Rowlock) -> int:
    return len(await app.fetch("SELECT n FROM ledger"))


async def test_a_block_that_is_open_when_the_handler_returns_is_waited_for(ledger: Rowlock) -> None:
    tasks: list[asyncio.Task[None]] = []

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        opened = asyncio.Event()

        async def late() -> None:
            async with ctx.transaction() as tx:
                opened.set()
                await asyncio.sleep(0.05)
                await tx.execute("INSERT INTO ledger VALUES (1)")

        tasks.append(asyncio.create_task(late()))
        await opened.wait()

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
    await asyncio.gather(*tasks)
    assert await entries(ledger) == [1]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_block_that_begins_after_its_handler_has_returned_is_refused(ledger: Rowlock) -> None:
    """It could not commit with the success any more, and would never end."""
    tasks: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async def late() -> None:
            await over.wait()
            await write(ctx, 1)

        tasks.append(asyncio.create_task(late()))

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
        over.set()
        with pytest.raises(NotAllowed, match="has ended"):
            await asyncio.wait_for(tasks[0], 20)
    assert await entries(ledger) == []


def test_an_attempt_does_not_hold_on_to_those_before_it_in_its_slot() -> None:
    """The next attempt of a slot is started by the one before, and begins with its context."""

    def begin() -> weakref.ref[Any]:
        transaction = loose_context("t").own_transaction
        transaction.enter()
        return weakref.ref(transaction)

    def begin_two() -> None:
        first, second = begin(), begin()
        gc.collect()
        assert (first(), second() is not None) == (None, True)

    contextvars.copy_context().run(begin_two)


async def test_a_transaction_is_of_no_use_after_its_end(ledger: Rowlock) -> None:
    async with ledger.transaction() as tx:
        async with ledger.transaction() as part:
            await part.execute("INSERT INTO ledger VALUES (1)")
        with pytest.raises(StoreError, match="has ended"):
            await part.execute("INSERT INTO ledger VALUES (2)")
    with pytest.raises(StoreError, match="has ended"):
        await asyncio.wait_for(tx.execute("INSERT INTO ledger VALUES (3)"), 20)
    assert await entries(ledger) == [1]


# Blocks that are cancelled, or raise


async def test_a_block_that_is_cancelled_leaves_nothing_and_the_handler_may_go_on(ledger: Rowlock) -> None:
    @ledger.task
    async def follow() -> None: ...

    async def slow(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ($1)", n)
            await asyncio.sleep(60)

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        for n in (1, 3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(slow(ctx, n), 0.1)
            await write(ctx, n + 1)
        await follow.enqueue()

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == [2, 4]
    assert await count_jobs(ledger, "follow") == 1


async def test_the_first_block_may_raise_and_the_handler_go_on(ledger: Rowlock) -> None:
    @ledger.task
    async def follow() -> None: ...

    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        with suppress(ValueError):
            await write(ctx, 1, fail=True)
        await follow.enqueue()
        await write(ctx, 2)

    async with working(ledger):
        await (await book.enqueue()).wait(timeout=10)
    assert await entries(ledger) == [2]
    assert await count_jobs(ledger, "follow") == 1


async def test_a_statement_that_failed_and_was_caught_undoes_the_success_with_it(ledger: Rowlock) -> None:
    @ledger.task(max_attempts=1)
    async def book(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            with suppress(StoreError):
                await tx.execute("INSERT INTO no_such_table VALUES (1)")

    async with working(ledger):
        job = await book.enqueue()
        with pytest.raises(JobDead, match=r"a statement of this transaction failed, so all of it was rolled back"):
            await job.wait(timeout=10)
    assert await entries(ledger) == []


async def test_an_operation_that_was_refused_and_caught_undoes_the_transaction(ledger: Rowlock) -> None:
    """Half of it may be written: here the key of a job that does not exist."""

    @ledger.task
    async def note() -> None: ...

    async with ledger.batch("b") as batch:
        pass
    with pytest.raises(StoreError, match="rolled back"):
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            with pytest.raises(NotAllowed):
                await note.using(batch=batch, key="a").enqueue()
    assert await entries(ledger) == []
    assert (await note.using(key="a").enqueue()).created


async def test_a_task_run_inline_joins_in_the_same_way(ledger: Rowlock) -> None:
    @ledger.task
    async def follow() -> None: ...

    @ledger.task
    async def book(ctx: Context, ok: bool) -> None:
        await asyncio.wait_for(write(ctx, 1), 5)
        await follow.enqueue()
        if not ok:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await run(book, ok=False)
    assert (await entries(ledger), await count_jobs(ledger)) == ([], 0)
    await run(book, ok=True)
    assert (await entries(ledger), await count_jobs(ledger)) == ([1], 1)
    await follow.enqueue()
    await until(lambda: count_is(ledger, 2))


async def count_is(app: Rowlock, number: int) -> bool:
    return await count_jobs(app) == number


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # on SQLite nobody else can write meanwhile
async def test_a_job_does_not_join_the_transaction_in_which_its_worker_was_started(app: Rowlock, app_url: str) -> None:
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> None:
        await child.enqueue()

    job = await parent.enqueue()
    with pytest.raises(RuntimeError, match="undone"):
        async with Rowlock(app_url) as elsewhere, app.transaction():
            async with app.worker():
                while (await elsewhere.job(job.id)).state != "succeeded":
                    await asyncio.sleep(0.02)
            raise RuntimeError("undone")
    assert len(await app.jobs(task="child")) == 1
