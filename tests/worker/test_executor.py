"""The executor on a real database: it is given jobs in a worker that claims nothing by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from rowlock import Context, LeaseLost, Rowlock, WorkerPool, fixed
from rowlock.core.job import Claimed
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.ids import new_token
from rowlock.store.jobs import claim
from support.rigs.worker import on_one_engine
from support.tasks.contract import attempts_of, fetch, in_state, row_of, until


@asynccontextmanager
async def worker(app: Rowlock, size: int) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(app, pool_size=size)
    await pool.start(claims=False)
    try:
        yield pool
    finally:
        await pool.stop()


async def put(app: Rowlock, pool: WorkerPool, *job_ids: str) -> list[Claimed]:
    """Claim these jobs, and have the worker start all of them at once."""
    store, sent = await app.store(), boottime()
    found = [await store.run(claim.claim_one(job_id, pool.id, new_token(), 60.0)) for job_id in job_ids]
    jobs = [job for job in found if job is not None]
    assert len(jobs) == len(job_ids)
    pool.executor.start(jobs, sent)
    return jobs


@on_one_engine
async def test_attempts_start_in_the_order_of_their_claim_and_never_more_than_there_are_slots(app: Rowlock) -> None:
    started: list[int] = []
    at_once, most, gate = 0, 0, asyncio.Event()

    @app.task
    async def work(n: int) -> None:
        nonlocal at_once, most
        started.append(n)
        at_once += 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1

    async with worker(app, 2) as pool:
        ids = [(await work.enqueue(n=n)).id for n in range(5)]
        await put(app, pool, *ids)
        assert pool.slots.fill()[:2] == (0, 3), "before the executor has seen them"
        await until(lambda: len(started) == 2)
        assert pool.slots.fill() == (0, 3, 0)
        gate.set()
        for job_id in ids:
            await in_state(app, job_id, "succeeded")
    assert (started, most) == ([0, 1, 2, 3, 4], 2)


@on_one_engine
async def test_a_slot_is_free_before_the_outcome_of_its_attempt_is_written(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None: ...

    async with worker(app, 1) as pool:
        store = await app.store()
        run = store.run

        async def slow(op: Any) -> Any:
            if op.name.startswith(("settle", "succeed")):
                writing.set()
                await go_on.wait()
            return await run(op)

        monkeypatch.setattr(store, "run", slow)
        job = await work.enqueue()
        await put(app, pool, job.id)
        await asyncio.wait_for(writing.wait(), 10)
        unwritten = (pool.slots.occupied, pool.slots.fill().free, pool.slots.fill().unsettled)
        (ended,) = pool.slots.held.values()
        kept = ended.task
        go_on.set()  # before anything is asserted: a worker that stops waits for its outcomes to be written
        await until(lambda: not pool.running)
        assert pool.slots.fill().unsettled == 0
    assert unwritten == (0, 1, 1)
    assert kept is None, "its task and context are kept, for the garbage collector to walk over"


@on_one_engine
async def test_a_job_that_is_cancelled_while_it_waits_for_a_slot_is_never_started(app: Rowlock) -> None:
    ran: list[str] = []
    gate = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ran.append(ctx.job_id)
        await gate.wait()

    async with worker(app, 1) as pool:
        first, second, third = [(await work.enqueue()).id for _ in range(3)]
        await put(app, pool, first, second, third)
        await until(lambda: ran == [first])
        assert await app.cancel(second) == "cancelling"
        pool.stopping.cancelled([pool.running[second]])
        await in_state(app, second, "cancelled")
        gate.set()
        await in_state(app, third, "succeeded")
    assert ran == [first, third]


@on_one_engine
async def test_an_attempt_that_hears_of_its_lost_lease_is_counted_once_and_settles_nothing(app: Rowlock) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        raise LeaseLost("gone", ctx.job_id, ctx.token)

    async with worker(app, 1) as pool:
        job = await work.enqueue()
        await put(app, pool, job.id)
        await until(lambda: pool.stale_refused == 1)
        assert (pool.running, pool.slots.fill().free) == ({}, 1)
        assert (await app.job(job.id)).state == "running", "its new holder settles it"
        assert await attempts_of(app, job.id) == []


@on_one_engine
async def test_an_attempt_that_was_told_of_its_lost_lease_has_written_nothing_and_is_not_counted(
    app: Rowlock,
) -> None:
    inside = asyncio.Event()

    @app.task
    async def work() -> None:
        inside.set()
        await asyncio.Event().wait()

    async with worker(app, 1) as pool:
        job = await work.enqueue()
        await put(app, pool, job.id)
        await asyncio.wait_for(inside.wait(), 10)
        pool.stopping.lost([pool.running[job.id]])
        await until(lambda: pool.slots.occupied == 0)
        assert (pool.running, pool.stale_refused) == ({}, 0)


@on_one_engine
async def test_a_batch_begins_with_its_first_attempt_and_is_written_once(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def work() -> None: ...

    async with app.batch("b") as batch:
        ids = [(await work.using(batch=batch).enqueue()).id for _ in range(4)]
    store, written = await app.store(), []
    run = store.run

    async def told(op: Any) -> Any:
        if op.name == "start":
            written.append(op)
        return await run(op)

    monkeypatch.setattr(store, "run", told)
    async with worker(app, 2) as pool:
        await put(app, pool, *ids)
        for job_id in ids:
            await in_state(app, job_id, "succeeded")
    assert len(written) == 1
    ((started,),) = await fetch(app, "SELECT started_at FROM {t}batches WHERE id = $1", batch.id)
    assert started is not None


def refuse(value: str) -> str:
    if value == "bad":
        raise ValueError("must be JSON")
    return value


@on_one_engine
async def test_an_argument_validator_that_speaks_of_json_does_not_make_an_invalid_result(app: Rowlock) -> None:
    """What an error says is never read: only its type counts."""
    allowed = True

    def check(value: str) -> str:
        return value if allowed else refuse("bad")

    @app.task(max_attempts=2, backoff=fixed(3600))
    async def work(text: Annotated[str, AfterValidator(check)]) -> None: ...

    async with worker(app, 1) as pool:
        job = await work.enqueue(text="x")
        allowed = False
        await put(app, pool, job.id)
        await in_state(app, job.id, "retryable")
    assert (await row_of(app, job.id))["error_code"] == "INVALID_ARGUMENTS"
