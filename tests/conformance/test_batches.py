"""Batches: what they take, when they end, and how they are cancelled and watched."""

import asyncio
from typing import Any

import pytest

from rowlock import NotAllowed, Permanent, Rowlock
from rowlock.core.outcome import Cancelled, Failed
from rowlock.core.times import FakeClock
from support.each import each
from support.rigs.app import app, ends_now, rig, sweep
from support.rigs.rig import TABLES, Rig
from support.tasks.contract import until, working

__all__ = ["app", "rig"]  # fixtures

ALL = (*TABLES, "batches", "batch_counts")


@pytest.fixture
def t(app: Rowlock) -> Any:
    @app.task("t")
    async def work(n: int = 0) -> None: ...

    return work


async def counts(batch: Any) -> tuple[str, int, int, int]:
    row = (await batch.refresh()).record
    return row.state, row.total, row.processed, row.failed


# --- from its beginning to its end


@each("fails", [False, True])
async def test_a_batch_is_queued_then_running_then_over(app: Rowlock, clock: FakeClock, fails: bool) -> None:
    go = asyncio.Event()

    @app.task("fails" if fails else "succeeds")
    async def work(n: int) -> None:
        await go.wait()
        if fails and n == 1:
            raise Permanent("the tap is closed", code="TAP")

    made = clock.now()
    async with app.batch("import 7", owner="ana") as batch:
        await work.using(batch=batch).enqueue_many([{"n": n} for n in range(3)])
    row = (await batch.refresh()).record
    assert (row.name, row.owner, row.state, row.sealed) == ("import 7", "ana", "queued", True)
    assert (row.total, row.processed, row.failed, row.last_error) == (3, 0, 0, None)
    assert (row.created_at, row.started_at, row.finished_at) == (made, None, None)

    async def running() -> bool:
        return bool((await batch.refresh()).state == "running")

    started = clock.move(10)
    async with working(app, sweep_seconds=3600):
        await until(running)
        assert (batch.started_at, batch.finished_at, batch.processed) == (started, None, 0)
        finished = clock.move(5)
        go.set()
        row = await batch.wait(timeout=10)
    assert (row.state, row.total, row.processed, row.failed) == ("failed" if fails else "succeeded", 3, 3, int(fails))
    assert (row.created_at, row.started_at, row.finished_at) == (made, started, finished)
    assert (row.last_error is not None) == fails
    assert not fails or "the tap is closed" in str(row.last_error)
    assert (await app.find_batch(batch.id)).record == row


async def test_a_batch_does_not_end_before_it_is_sealed(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("b") as batch:
        for n in range(2):
            await t.using(batch=batch).enqueue(n=n)
            for job in await rig.claim(9):
                await rig.succeed(job)
            assert await sweep(rig) == []
            assert await counts(batch) in [(state, n + 1, n + 1, 0) for state in ("queued", "running")]
            assert batch.finished_at is None
    assert await counts(batch) == ("succeeded", 2, 2, 0), "the end of the block was its end"


async def test_a_batch_does_not_end_before_its_last_job(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(3)])
    for _ in range(3):
        assert await sweep(rig) == []
        assert not (await batch.refresh()).record.over
        (job,) = await rig.claim()
        assert await sweep(rig) == []
        await rig.succeed(job)
    assert await ends_now(rig, batch)
    assert await sweep(rig) == []
    assert await counts(batch) == ("succeeded", 3, 3, 0)


async def test_an_empty_batch_ends_at_once(app: Rowlock, clock: FakeClock) -> None:
    async with app.batch("nothing to do") as batch:
        pass
    assert await counts(batch) == ("succeeded", 0, 0, 0)
    assert batch.finished_at == clock.now()


# --- cancelling


async def test_an_exception_in_the_block_cancels_the_batch(app: Rowlock, t: Any, rig: Rig) -> None:
    for error in (ZeroDivisionError, asyncio.CancelledError):
        with pytest.raises(error):
            async with app.batch("half an import") as batch:
                queued = await t.using(batch=batch).enqueue_many([{"n": n} for n in range(3)])
                raise error
        assert await counts(batch) == ("cancelled", 3, 3, 0)
        assert {await rig.state(job.id) for job in queued} == {"cancelled"}
        before = await rig.everything(ALL)
        with pytest.raises(NotAllowed, match=r"ended|cancelled"):
            await t.using(batch=batch).enqueue()
        assert await rig.everything(ALL) == before


async def test_an_exception_in_the_block_of_a_batch_that_is_over_stays_what_it_is(app: Rowlock) -> None:
    """An operator was faster: whoever wrote the block waits for the block's own error."""
    with pytest.raises(ZeroDivisionError):
        async with app.batch("b") as batch:
            await (await app.find_batch(batch.id)).cancel()
            raise ZeroDivisionError


async def test_cancelling_a_batch_cancels_what_is_left(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(6)])
    outside = await t.enqueue()
    done, dead, obeys, ends = await rig.claim(4)
    await rig.succeed(done)
    await rig.settle(dead, Failed("E", "no", permanent=True))
    await batch.cancel()
    assert (await counts(batch))[1:] == (6, 4, 1)
    assert not batch.over, "two still run"
    states = [row["state"] for row in (await rig.rows()).values() if row["batch_id"] == batch.id]
    assert sorted(states) == ["cancelled", "cancelled", "dead", "running", "running", "succeeded"]
    assert {(await rig.row(job.id))["cancel_requested_at"] for job in (obeys, ends)} == {rig.clock.now()}
    with pytest.raises(NotAllowed, match="cancelled"):
        await t.using(batch=batch).enqueue()
    await rig.settle(obeys, Cancelled())
    await rig.settle(ends, Failed("E", "no"))  # does not go back to waiting
    await sweep(rig)
    assert await counts(batch) == ("cancelled", 6, 6, 1)
    assert await rig.state(outside.id) == "queued"
    with pytest.raises(NotAllowed, match="cancelled"):
        await batch.cancel()


async def test_cancelling_within_the_block_is_kept_at_its_end(app: Rowlock, t: Any) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue()
        await batch.cancel()
        with pytest.raises(NotAllowed, match=r"ended|cancelled"):
            await t.using(batch=batch).enqueue()
    assert await counts(batch) == ("cancelled", 1, 1, 0)


# --- watching


async def test_a_batch_can_be_watched(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(3)])
    seen: list[Any] = []

    async def watch() -> None:
        async for row in (await app.find_batch(batch.id)).watch():
            seen.append((row.processed, row.state))

    watching = asyncio.create_task(watch())
    for n in range(3):
        await until(lambda n=n: bool(seen) and seen[-1][0] == n)
        (job,) = await rig.claim()
        await rig.succeed(job)
    await sweep(rig)
    async with asyncio.timeout(10):
        await watching
    assert seen[-1] == (3, "succeeded")
    assert sorted(set(seen)) == sorted(seen), "only changes"


async def test_waiting_for_a_batch_has_a_deadline(app: Rowlock, t: Any) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue()
    with pytest.raises(TimeoutError):
        await batch.wait(timeout=0.05)
