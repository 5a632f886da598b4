"""A batch's numbers are exact through all that can happen to its jobs, an operator's retry among it."""

import random
from datetime import timedelta
from typing import Any

import pytest

from rowlock import LeaseLost, NotAllowed, Rowlock
from rowlock.core.errors import StoreError
from rowlock.core.job import NewJob
from rowlock.core.outcome import Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.store.jobs import cancel, enqueue, settle
from rowlock.store.jobs.enqueue import NewRow
from support.each import each
from support.rigs.app import app, ends_now, report, rig, sweep, t
from support.rigs.rig import KEEP, Rig
from support.sql.refusals import refused

__all__ = ["app", "report", "rig", "t"]  # fixtures

DEAD = Failed("E", "no", permanent=True)
FINAL = ("succeeded", "dead", "cancelled")


async def exact(rig: Rig, batch: Any) -> None:
    """Whatever the batch says is what its jobs say."""
    jobs_ = [row for row in (await rig.rows()).values() if row["batch_id"] == batch.id]
    ways = [row["error_code"] if row["error_code"] == "EXPIRED" else row["state"] for row in jobs_]
    row = (await batch.refresh()).record
    dead, expired = ways.count("dead"), ways.count("EXPIRED")
    truth = (len(ways), sum(way in (*FINAL, "EXPIRED") for way in ways), dead + expired)
    assert (row.total, row.processed, row.failed) == truth, ways
    truth = (ways.count("succeeded"), dead, ways.count("cancelled"), expired)
    assert (row.succeeded, row.dead, row.cancelled, row.expired) == truth, ways


async def reports(rig: Rig) -> list[dict[str, Any]]:
    return [row for row in (await rig.rows()).values() if row["task"] == "report"]


async def test_counts_are_exact_through_every_way_to_end(app: Rowlock, t: Any, rig: Rig) -> None:
    @app.task("t-once", on_lost="dead")
    async def once() -> None: ...

    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(8)])
        await t.using(batch=batch, expires_at=rig.clock.now() + timedelta(hours=2), delay=86400).enqueue()
        await once.using(batch=batch).enqueue()
    claimed = await rig.claim(8)
    (single,) = await rig.claim(task="t-once")
    ends = [Succeeded('"r"'), Failed("E", "no"), Released(0), DEAD, TimedOut(1), Cancelled()]
    for job, end in zip(claimed, ends, strict=False):
        await rig.settle(job, end)
        await exact(rig, batch)
    rig.clock.move(61)
    assert {lost.job.id for lost in await rig.reclaim()} == {claimed[6].id, claimed[7].id, single.id}
    await exact(rig, batch)
    await rig.cancel(claimed[7].id)  # waits for its next try
    await exact(rig, batch)
    rig.clock.move(7200)
    assert await rig.store.run(cancel.expire(10, KEEP)) == 1
    await exact(rig, batch)
    await rig.promote()
    rest = await rig.claim(9)
    assert [job.id for job in rest] == [claimed[n].id for n in (1, 2, 4, 6)]
    for job in rest:
        await rig.succeed(job)
        await exact(rig, batch)
    assert await ends_now(rig, batch)
    assert (batch.state, batch.total, batch.processed, batch.failed) == ("failed", 10, 10, 3)
    assert (batch.succeeded, batch.dead, batch.cancelled, batch.expired) == (5, 2, 2, 1)


@each(
    "ends, state",
    [
        (["succeeded", "succeeded"], "succeeded"),
        (["succeeded", "cancelled"], "cancelled"),
        (["cancelled", "cancelled"], "cancelled"),
        (["succeeded", "expired"], "failed"),
        (["expired", "expired"], "failed"),
        (["cancelled", "expired"], "failed"),
        (["cancelled", "dead"], "failed"),
    ],
    afresh=True,
)
async def test_a_batch_ends_in_the_state_that_its_jobs_make_true(
    app: Rowlock, t: Any, rig: Rig, report: Any, ends: list[str], state: str
) -> None:
    async with app.batch("b", on_end=report) as batch:
        for end in ends:
            latest = rig.clock.now() + timedelta(hours=1) if end == "expired" else None
            await t.using(batch=batch, expires_at=latest, delay=86400 if end == "expired" else 0, tags=[end]).enqueue()
    for job in await rig.claim(2):
        how = (await rig.row(job.id))["tags"][0]
        await rig.settle(job, {"succeeded": Succeeded(), "dead": DEAD, "cancelled": Cancelled()}[how])
    rig.clock.move(7200)
    await rig.store.run(cancel.expire(10, KEEP))
    await sweep(rig)
    await exact(rig, batch)
    assert (batch.state, batch.processed) == (state, 2)
    (told,) = await reports(rig)
    names = ("state", "total", "processed", "failed", "succeeded", "dead", "cancelled", "expired")
    assert {name: told["args"]["batch"][name] for name in names} == {name: getattr(batch, name) for name in names}
    assert (batch.last_error is not None) == (state == "failed")


async def test_a_job_that_is_settled_twice_or_by_a_zombie_counts_once_in_its_batch(
    app: Rowlock, t: Any, rig: Rig
) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(4)])
    dead, done, zombie, plain = await rig.claim(4)
    for _ in range(2):
        await rig.settle(dead, DEAD)
        await rig.settle(done, Succeeded())
        await exact(rig, batch)
    rig.clock.move(61)
    await rig.reclaim()
    await rig.promote()
    rig.clock.move(60)
    await rig.promote()
    mine, _ = await rig.claim(2)
    assert mine.id == zombie.id
    assert await rig.settle(zombie, DEAD) == "lost"
    done = [(mine.id, mine.token, None), (plain.id, plain.token, None)]
    with pytest.raises(LeaseLost):  # `plain` is no longer held: neither may be counted
        await rig.store.run(settle.succeed(done, KEEP, [mine, plain]))
    await exact(rig, batch)
    await rig.succeed(mine)
    await exact(rig, batch)
    assert batch.processed == 3


@each("seed", range(2), afresh=True)
async def test_counts_are_exact_after_any_steps(app: Rowlock, t: Any, rig: Rig, seed: int) -> None:
    dice = random.Random(seed)
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(6)])
        latest = rig.clock.now() + timedelta(seconds=200)
        await t.using(batch=batch, expires_at=latest).enqueue_many([{"n": n} for n in range(3)])
    held: list[Any] = []
    cancelled = False  # the batch as a whole
    await exact(rig, batch)
    for _ in range(60):
        waiting = [row for row in (await rig.rows()).values() if row["task"] == "t"]
        chosen = dice.choice(waiting)["id"]
        match dice.randrange(20) // 3:
            case 0 | 1:
                held += await rig.claim(dice.randrange(1, 4))
            case 2 | 3 if held:
                job = held.pop(dice.randrange(len(held)))
                end = dice.choice([Succeeded(), DEAD, Failed("E", "no", after=1), Released(0), Cancelled()])
                assert await rig.settle(job, end) in ("applied", "lost")
            case 4:
                await rig.cancel(chosen)
            case 5:
                over = batch.over
                if await rig.retry(chosen) and over:
                    await batch.refresh()
                    cancelled = cancelled and batch.cancelled > 0
            case 6 if not batch.over and dice.random() < 0.3:
                await batch.cancel()
                cancelled = True
        rig.clock.move(dice.choice([0, 5, 61]))
        await rig.promote()
        await rig.reclaim()
        await rig.store.run(cancel.expire(10, KEEP))
        await sweep(rig)
        await exact(rig, batch)
        if batch.over:
            worst = "failed" if batch.failed else "cancelled" if batch.cancelled else "succeeded"
            assert batch.state == ("cancelled" if cancelled else worst)
        assert batch.over == (batch.processed == batch.total)
        assert (batch.finished_at is not None) == batch.over


# --- the last error


async def test_the_last_error_is_that_of_the_job_that_died_last(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue_many([{"n": n} for n in range(4)])
    one, two, three, four = await rig.claim(4)
    await rig.settle(one, Failed("HTTP_500", "first"))
    assert (await batch.refresh()).last_error is None, "it will be tried again"
    for job, message in ((two, "second"), (three, "third")):
        rig.clock.move(1)
        await rig.settle(job, Failed("HTTP_403", message, permanent=True))
        assert message in (await batch.refresh()).last_error
    await rig.succeed(four)
    assert "third" in (await batch.refresh()).last_error


# --- an operator's retry


@each("how", ["dead", "cancelled"], afresh=True)
async def test_a_retry_reopens_the_batch(app: Rowlock, t: Any, rig: Rig, report: Any, how: str) -> None:
    async with app.batch("b", on_end=report) as batch:
        one, _ = await t.using(batch=batch).enqueue_many([{"n": 1}, {"n": 2}])
    first, second = await rig.claim(2)
    await rig.succeed(second)
    if how == "cancelled":
        await batch.cancel()
    await rig.settle(first, Cancelled() if how == "cancelled" else DEAD)
    await sweep(rig)
    row = (await batch.refresh()).record
    assert (row.state, row.processed, row.failed) == ("cancelled" if how == "cancelled" else "failed", 2, how == "dead")
    rig.clock.move(5)
    await app.retry(one.id)
    await exact(rig, batch)
    assert (batch.state, batch.finished_at, batch.started_at) == ("running", None, row.started_at)
    assert await sweep(rig) == []
    (again,) = await rig.claim()
    await rig.succeed(again)
    assert await ends_now(rig, batch)
    await exact(rig, batch)
    assert (batch.state, batch.finished_at) == ("succeeded", rig.clock.now())
    assert len(await reports(rig)) == 1, "on_end is for the first end"


async def test_a_cancelled_batch_stays_cancelled_when_one_of_its_jobs_is_retried(
    app: Rowlock, t: Any, rig: Rig
) -> None:
    async with app.batch("b") as batch:
        dead, one, two = await t.using(batch=batch).enqueue_many([{"n": n} for n in range(3)])
    await rig.settle(*await rig.claim(), DEAD)
    await batch.cancel()
    await exact(rig, batch)
    assert (batch.state, batch.dead, batch.cancelled) == ("cancelled", 1, 2)
    for job, state in ((one, "cancelled"), (two, "failed"), (dead, "succeeded")):
        await app.retry(job.id)
        await exact(rig, batch)
        assert batch.state == "running"
        (again,) = await rig.claim()
        await rig.succeed(again)
        await sweep(rig)
        await exact(rig, batch)
        assert batch.state == state, "cancelled until the last cancelled job was retried"


async def test_a_retried_job_of_a_cancelled_batch_may_add_to_it_until_the_batch_is_cancelled_again(
    app: Rowlock, t: Any, rig: Rig
) -> None:
    async with app.batch("b") as batch:
        one, _ = await t.using(batch=batch).enqueue_many([{"n": 1}, {"n": 2}])
    await batch.cancel()
    await app.retry(one.id)
    (again,) = await rig.claim()
    new = NewJob("t", batch_id=batch.id)

    async def add() -> None:
        row = NewRow(rig.new_id(), "{}", None, None)
        await rig.store.run(enqueue.enqueue_rows([row], new, lease=(again.id, again.token)))

    await add()
    await exact(rig, batch)
    assert batch.total == 3
    await batch.cancel()
    with pytest.raises(NotAllowed, match="cancelled"):
        await add()
    await rig.settle(again, Cancelled())
    await sweep(rig)
    await exact(rig, batch)
    assert (batch.state, batch.cancelled) == ("cancelled", 3)


async def test_the_cancel_of_a_batch_survives_one_bad_row_and_names_it(
    app: Rowlock, t: Any, rig: Rig, database: str
) -> None:
    async with app.batch("b") as batch:
        made = await t.using(batch=batch).enqueue_many([{"n": n} for n in range(5)])
    bad = made[2].id
    with refused(database, "jobs_finished", "id", bad), pytest.raises(StoreError, match=f"one is {bad}: .*a bad row"):
        await batch.cancel()
    assert [await rig.state(job.id) for job in made] == ["cancelled", "cancelled", "queued", "cancelled", "cancelled"]
    await batch.cancel()
    await exact(rig, batch)
    assert (batch.state, batch.cancelled) == ("cancelled", 5)
