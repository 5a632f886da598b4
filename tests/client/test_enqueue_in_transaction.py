"""Enqueue in `app.transaction()`: jobs and the user's rows commit together, and only callers inside join."""

import asyncio
import contextvars
import time
import uuid
from contextlib import AsyncExitStack, suppress

import pytest

from rowlock import InvalidArguments, NotAllowed, Rowlock
from support.tasks.contract import count_jobs, execute, fetch, row_of, rows_of, until, working

JOB_IDS = "SELECT id FROM {t}jobs"


async def test_user_rows_and_jobs_commit_together(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    await execute(app, "CREATE TABLE orders (n integer)")
    async with app.transaction() as tx:
        await tx.execute("INSERT INTO orders VALUES ($1)", 1)
        job = await note.enqueue(n=1)  # joins by itself
        many = await note.enqueue_many([{"n": 2}, {"n": 3}])
        chosen = await note.using(job_id=str(uuid.uuid4())).enqueue(n=4)
    assert await fetch(app, "SELECT n FROM orders") == [(1,)]
    assert {job.id, *(job.id for job in many), chosen.id} == {str(r[0]) for r in await fetch(app, JOB_IDS)}


async def test_user_rows_and_jobs_roll_back_together(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    chosen = str(uuid.uuid4())
    await execute(app, "CREATE TABLE orders (n integer)")
    with pytest.raises(ZeroDivisionError):
        async with app.transaction() as tx:
            await tx.execute("INSERT INTO orders VALUES ($1)", 1)
            await note.enqueue(n=1)
            await note.using(job_id=chosen).enqueue(n=2)
            await note.enqueue_many([{"n": 3}] * 300)
            raise ZeroDivisionError
    assert await fetch(app, "SELECT n FROM orders") == []
    assert await count_jobs(app) == 0
    assert (await note.using(job_id=chosen).enqueue(n=2)).created is True, "the rolled back id is still taken"


async def test_enqueues_at_the_same_time_in_one_transaction(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    async with app.transaction():
        await asyncio.gather(*(note.enqueue(n=n) for n in range(5)))
    assert sorted(row["args"]["n"] for row in await rows_of(app)) == [0, 1, 2, 3, 4]


async def test_sync_code_in_a_transaction_joins_it_or_is_told_that_it_cannot(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    with pytest.raises(ZeroDivisionError):
        async with app.transaction():
            with suppress(InvalidArguments, NotAllowed):
                note.enqueue_sync()
            raise ZeroDivisionError
    assert await count_jobs(app) == 0, "it went around the transaction"


async def test_a_task_that_outlives_its_transaction_enqueues_on_its_own(app: Rowlock) -> None:
    """`create_task` copies the context, and with it the transaction that is over when the task gets to work."""

    @app.task
    async def note(n: int) -> None: ...

    over = asyncio.Event()

    async def later() -> None:
        await over.wait()
        await note.enqueue(n=2)

    async with app.transaction():
        await note.enqueue(n=1)
        task = asyncio.create_task(later())
    over.set()
    async with asyncio.timeout(20):
        await task
    assert [row["args"]["n"] for row in await rows_of(app)] == [1, 2]


async def test_a_transaction_in_a_transaction_is_part_of_it_or_refused_at_once(app: Rowlock) -> None:
    """On SQLite a second one would wait for the first, which waits for it."""

    @app.task
    async def note(n: int) -> None: ...

    started = time.monotonic()
    with pytest.raises((ZeroDivisionError, NotAllowed, InvalidArguments)):
        async with app.transaction():
            await note.enqueue(n=1)
            async with app.transaction():
                await note.enqueue(n=2)
            raise ZeroDivisionError
    assert time.monotonic() - started < 4
    assert await count_jobs(app) == 0, "the inner one was committed although the outer one was not"


async def test_a_job_is_not_visible_before_the_transaction_commits(app: Rowlock, app_url: str) -> None:
    @app.task
    async def note() -> None: ...

    async with Rowlock(app_url) as elsewhere:
        async with app.transaction():
            job = await note.enqueue()
            assert await elsewhere.jobs() == []
        assert [one.id for one in await elsewhere.jobs()] == [job.id]


@pytest.mark.parametrize("engine", ["postgres"])  # on SQLite nobody can claim while a transaction is open
async def test_a_worker_that_looks_before_the_commit_runs_other_jobs_alone(app: Rowlock, app_url: str) -> None:
    started = list[int]()

    @app.task
    async def note(n: int) -> None:
        started.append(n)

    async with Rowlock(app_url) as elsewhere, working(app):
        async with app.transaction():
            job = await note.enqueue(n=1)
            later = await elsewhere.task("note")(note.function).enqueue(n=2)
            await later.wait(timeout=20)
            assert started == [2]
        await job.wait(timeout=20)
    assert started == [2, 1]


@pytest.mark.parametrize("engine", ["postgres"])  # on SQLite nobody can fall asleep while a transaction is open
async def test_a_commit_wakes_a_worker_that_fell_asleep_after_the_enqueue(app: Rowlock) -> None:
    """Who is idle must be asked when the transaction commits: a long one would else miss who became idle meanwhile."""

    @app.task
    async def note() -> int:
        return 1

    async with AsyncExitStack() as exits:
        async with app.transaction():
            job = await note.enqueue()
            outside = contextvars.Context()  # the worker is not part of the transaction
            pool = await asyncio.create_task(
                exits.enter_async_context(working(app, poll_interval_seconds=60)), context=outside
            )
            await until(lambda: pool.claimer.plan.drained)  # it has polled for the last time, and sleeps for 60 s
        assert await job.wait(timeout=20) == 1  # the poll would take 60


async def test_a_refused_enqueue_in_a_transaction_leaves_the_transaction_usable(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    async with app.transaction():
        with pytest.raises(InvalidArguments):
            await note.enqueue(n="x")
        await note.enqueue(n=1)
    assert await count_jobs(app) == 1


async def test_other_callers_do_not_join_a_transaction_that_is_not_theirs(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    opened, go = asyncio.Event(), asyncio.Event()

    async def outsider() -> None:
        await opened.wait()
        task = asyncio.ensure_future(note.enqueue(n=2))
        go.set()
        await task

    other = asyncio.create_task(outsider())
    with pytest.raises(ZeroDivisionError):
        async with app.transaction():
            await note.enqueue(n=1)
            opened.set()
            await go.wait()
            raise ZeroDivisionError
    await other
    assert [row["args"] for row in [await row_of(app, str(r[0])) for r in await fetch(app, JOB_IDS)]] == [{"n": 2}]
