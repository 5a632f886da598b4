"""Who may add jobs to a batch: anybody until it is sealed, its own jobs until it ends."""

from collections import Counter
from typing import Any

import pytest

from rowlock import Batch, BatchNotFound, Context, InvalidArguments, LeaseLost, NotAllowed, Rowlock
from rowlock.core.job import NewJob
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.enqueue import NewRow
from support.rigs.app import app, rig, sweep
from support.rigs.rig import TABLES, Rig
from support.tasks.contract import WAIT, working

__all__ = ["app", "rig"]  # fixtures

ALL = (*TABLES, "batches", "batch_counts")
UNKNOWN = "01890000-0000-7000-8000-00000000000f"


@pytest.fixture
def t(app: Rowlock) -> Any:
    @app.task("t")
    async def work(n: int = 0) -> None: ...

    return work


async def refused(rig: Rig, bound: Any, error: type[Exception], match: str) -> None:
    before = await rig.everything(ALL)
    with pytest.raises(error, match=match):
        await bound.enqueue(n=1)
    with pytest.raises(error, match=match):
        await bound.enqueue_many([{"n": 1}, {"n": 2}])
    assert await rig.everything(ALL) == before


async def test_nobody_adds_from_outside_to_a_sealed_batch(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("sealed") as batch:
        await t.using(batch=batch).enqueue()
    for given in (batch, batch.id, await app.find_batch(batch.id)):
        await refused(rig, t.using(batch=given), NotAllowed, "sealed")
        await refused(rig, t.using(batch=given, key=lambda n: f"k{n}"), NotAllowed, "sealed")
    before = await rig.everything(ALL)
    with pytest.raises(NotAllowed, match="sealed"):
        await t.using(batch=batch, job_id=UNKNOWN).enqueue()
    with pytest.raises(NotAllowed, match="sealed"):
        async with app.transaction():
            await t.using(batch=batch).enqueue()
    assert await rig.everything(ALL) == before
    (job,) = await rig.claim()
    await rig.succeed(job)
    await sweep(rig)
    await refused(rig, t.using(batch=batch), NotAllowed, "ended")


async def test_a_batch_that_is_not_there_takes_no_jobs(app: Rowlock, t: Any, rig: Rig) -> None:
    await refused(rig, t.using(batch=UNKNOWN), BatchNotFound, UNKNOWN)
    await refused(rig, t.using(batch="import 7"), InvalidArguments, "batch")
    await refused(rig, t.using(batch=7), InvalidArguments, "batch")
    for bad in (UNKNOWN, "import 7", ""):
        with pytest.raises(BatchNotFound):
            await app.find_batch(bad)


async def test_jobs_of_a_sealed_batch_add_jobs_to_it_until_it_ends(app: Rowlock, rig: Rig) -> None:
    @app.task
    async def child(n: int) -> None: ...

    @app.task(max_attempts=1)
    async def parent(ctx: Context, how: str) -> None:
        if how == "in its transaction":
            async with ctx.transaction():
                await child.using(batch=ctx.batch_id).enqueue(n=1)
            return
        options = {"with a key": {"key": "k"}, "with an id": {"job_id": UNKNOWN}}.get(how, {})
        await ctx.enqueue(child.using(batch=ctx.batch_id, **options), n=1)

    batches = dict[str, Batch]()
    for how in ("ctx.enqueue", "in its transaction", "with a key", "with an id"):
        async with app.batch(how) as batches[how]:
            await parent.using(batch=batches[how]).enqueue(how=how)
    async with working(app, sweep_seconds=3600):
        ended = {how: await batch.wait(timeout=WAIT) for how, batch in batches.items()}
    assert {how: (row.state, row.total, row.processed, row.last_error) for how, row in ended.items()} == dict.fromkeys(
        batches, ("succeeded", 2, 2, None)
    )
    members = Counter(row["batch_id"] for row in (await rig.rows()).values())
    assert members == {batch.id: 2 for batch in batches.values()}


async def test_jobs_of_another_batch_do_not_add_to_a_sealed_one(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("mine") as mine, app.batch("theirs") as theirs:
        await t.using(batch=mine).enqueue()
        await t.using(batch=theirs).enqueue()
    stranger = next(job for job in await rig.claim(9) if job.batch_id == theirs.id)
    before = await rig.everything(ALL)
    row, new = NewRow(rig.new_id(), "{}", None, None), NewJob(task="t", batch_id=mine.id)
    with pytest.raises(NotAllowed, match="sealed"):
        await rig.store.run(enqueue.enqueue_rows([row], new, (stranger.id, stranger.token)))
    assert await rig.everything(ALL) == before


async def test_a_job_that_is_no_longer_held_adds_nothing(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("b") as batch:
        await t.using(batch=batch).enqueue()
    (zombie,) = await rig.claim()
    await rig.lose(zombie)
    row, new = NewRow(rig.new_id(), "{}", None, None), NewJob(task="t", batch_id=batch.id)
    lease, before = (zombie.id, zombie.token), await rig.everything(ALL)
    with pytest.raises(NotAllowed, match="sealed"):
        await rig.store.run(enqueue.enqueue_rows([row], new, lease))
    with pytest.raises(LeaseLost):
        await rig.store.run(enqueue.enqueue_rows([row], new, lease, must_hold=True))
    assert await rig.everything(ALL) == before


async def test_a_duplicate_is_no_job_of_the_batch(app: Rowlock, t: Any, rig: Rig) -> None:
    async with app.batch("first") as first:
        made = await t.using(batch=first, key=lambda n: f"k{n}").enqueue_many([{"n": 0}, {"n": 1}, {"n": 0}])
    async with app.batch("second") as second:
        await t.using(batch=second, key=lambda n: f"k{n}").enqueue_many([{"n": 1}, {"n": 2}])
        await t.using(batch=second, key="k0").enqueue()
    assert (await first.refresh()).total == 2
    assert (await second.refresh()).total == 1
    assert (await rig.row(made[1].id))["batch_id"] == first.id
