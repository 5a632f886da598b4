"""The end of a batch: told once by its `on_end`, found by a sweeper if need be, and forgotten after a while."""

from datetime import timedelta
from typing import Any

import pytest

from rowlock import BatchNotFound, InvalidArguments, Rowlock
from rowlock.core.outcome import Failed, Succeeded
from rowlock.store import batches
from rowlock.store.jobs import settle
from rowlock.store.upkeep import retention
from support.each import each
from support.rigs.app import app, report, rig, sweep, t
from support.rigs.rig import KEEP, TABLES, Rig, settlement
from support.tasks.contract import working

__all__ = ["app", "report", "rig", "t"]  # fixtures

ALL = (*TABLES, "batches", "batch_counts")
DEAD = Failed("E", "no", permanent=True)


async def reports(rig: Rig) -> list[dict[str, Any]]:
    return [row for row in (await rig.rows()).values() if row["task"] == "report"]


# --- on_end


@each("end", [Succeeded(), DEAD, None], ids=["succeeded", "failed", "cancelled"], afresh=True)
async def test_on_end_is_enqueued_once_with_the_state_and_counts_of_its_batch(
    app: Rowlock, t: Any, rig: Rig, report: Any, end: Any
) -> None:
    async with app.batch("import 7", owner="ana", on_end=report) as batch:
        await t.using(batch=batch).enqueue_many([{"n": 1}, {"n": 2}])
    for job in await rig.claim(1 if end is None else 2):
        assert await reports(rig) == []
        await rig.settle(job, end or Succeeded())
    if end is None:
        await batch.cancel()
    for _ in range(3):
        await sweep(rig)
    (job,) = await reports(rig)
    assert (job["state"], job["queue"], job["priority"], job["owner"]) == ("queued", "reports", 7, "ana")
    row = (await batch.refresh()).record
    ways = ("succeeded", "dead", "cancelled", "expired")
    names = ("name", "owner", "state", "total", "processed", "failed", *ways, "last_error")
    assert job["args"] == {"batch": {"batch_id": batch.id} | {name: getattr(row, name) for name in names}}
    assert row.state == {Succeeded(): "succeeded", DEAD: "failed", None: "cancelled"}[end]


async def test_an_empty_batch_has_its_on_end(app: Rowlock, rig: Rig, report: Any) -> None:
    async with app.batch("nothing", on_end="report"):
        pass
    (job,) = await reports(rig)
    assert (job["args"]["batch"]["state"], job["args"]["batch"]["total"]) == ("succeeded", 0)


async def test_an_on_end_that_takes_something_else_is_refused(app: Rowlock, t: Any, rig: Rig) -> None:
    @app.task
    async def two(batch: dict[str, Any], more: int) -> None: ...

    before = await rig.everything(ALL)
    for bad, match in ((t, "t"), (two, "two"), (len, "on_end")):
        with pytest.raises(InvalidArguments, match=match):
            async with app.batch("b", on_end=bad):  # type: ignore[arg-type]
                raise AssertionError("the block ran")
    assert await rig.everything(ALL) == before


async def test_a_transaction_that_is_rolled_back_ends_no_batch(app: Rowlock, t: Any, rig: Rig, report: Any) -> None:
    async with app.batch("b", on_end=report) as batch:
        await t.using(batch=batch).enqueue()
    (job,) = await rig.claim()
    before = await rig.everything(ALL)
    with pytest.raises(ZeroDivisionError):
        async with app.transaction() as tx:
            assert await tx.run(settle.apply([settlement(job, Succeeded())], KEEP)) == {job.id: "applied"}
            assert await tx.run(batches.end([batch.id])) == [batch.id]
            raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        async with app.transaction():
            async with app.batch("within", on_end=report) as within:
                await t.using(batch=within).enqueue()
            async with app.batch("empty", on_end=report):
                pass
            raise ZeroDivisionError
    assert await rig.everything(ALL) == before
    with pytest.raises(BatchNotFound):
        await app.find_batch(within.id)
    async with app.transaction():
        async with app.batch("empty", on_end=report):
            pass
    assert len(await reports(rig)) == 1


# --- sweeper and retention


async def test_the_sweeper_ends_a_batch_whose_worker_died_after_its_last_settle(
    app: Rowlock, t: Any, rig: Rig, report: Any
) -> None:
    async with app.batch("b", on_end=report) as batch:
        await t.using(batch=batch).enqueue()
    (job,) = await rig.claim(worker="dies")
    await rig.succeed(job)
    assert not (await batch.refresh()).over, "nobody has looked yet"
    quick = {"sweep_seconds": 0.1, "queues": ["nothing here"]}
    async with working(app, **quick), working(app, **quick):
        assert (await batch.wait(timeout=10)).state == "succeeded"
    assert len(await reports(rig)) == 1


async def test_the_sweeper_ends_a_batch_whose_last_job_an_operator_cancelled(app: Rowlock, t: Any) -> None:
    async with app.batch("b") as batch:
        job = await t.using(batch=batch).enqueue()
    await app.cancel(job.id)
    async with working(app, sweep_seconds=0.1, queues=["nothing here"]):
        assert (await batch.wait(timeout=10)).processed == 1


async def test_prune_forgets_batches_that_ended_long_ago(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("old") as old:
        await t.using(batch=old).enqueue()
    (job,) = await rig.claim()
    await rig.succeed(job)
    await sweep(rig)
    async with app.batch("open") as still_open:
        await t.using(batch=still_open, delay=86400 * 365).enqueue()
    rig.clock.move(29 * 86400)
    async with app.batch("new") as new:
        pass
    await retention.prune(rig.store, KEEP)
    assert (await old.refresh()).total == 1
    rig.clock.move(2 * 86400)
    await retention.prune(rig.store, KEEP)
    with pytest.raises(BatchNotFound):
        await old.refresh()
    assert [(await batch.refresh()).total for batch in (still_open, new)] == [1, 0]
    assert await rig.fetch("SELECT count(*) FROM {t}batch_counts") == [(1,)]


async def test_a_job_that_outlives_its_batch_can_still_be_retried(app: Rowlock, rig: Rig) -> None:
    @app.task("t", keep=timedelta(days=365))
    async def kept() -> None: ...

    async with app.batch("old") as batch:
        job = await kept.using(batch=batch).enqueue()
    (claimed,) = await rig.claim()
    await rig.settle(claimed, DEAD)
    await sweep(rig)
    rig.clock.move(40 * 86400)
    await retention.prune(rig.store, KEEP)
    assert await rig.state(job.id) == "dead"
    assert (await app.retry(job.id)).state == "queued"
    (again,) = await rig.claim()
    await rig.succeed(again)
    assert await rig.state(job.id) == "succeeded"
