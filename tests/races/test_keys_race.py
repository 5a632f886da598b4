"""Many callers, one key: one job, and nobody goes without an answer."""

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from rowlock import Rowlock
from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed
from rowlock.store import Store
from rowlock.store.jobs import enqueue as enqueue_jobs
from rowlock.store.jobs import retry as retries
from rowlock.store.jobs.enqueue import NewRow
from support.each import each
from support.races.interleave import Actor, orders, play, watching
from support.rigs.app import app, rig
from support.rigs.rig import Rig

__all__ = ["app", "rig"]  # fixtures

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

KINDS = ["until_done", "while_queued", "forever", timedelta(hours=1)]
PATIENCE = 20.0
ACTIVE = "SELECT CAST(id AS text) FROM {t}jobs_live"


@pytest.fixture
def t(app: Rowlock) -> Any:
    @app.task("t")
    async def work(n: int = 0) -> None: ...

    return work


async def blocked(watcher: Any, count: int) -> None:
    """Wait until so many sessions wait for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE pg_blocking_pids(pid) <> '{}' AND datname = current_database()"
    )
    async with asyncio.timeout(PATIENCE):
        while await watcher.fetchval(waiting) != count:
            await asyncio.sleep(0.005)


# --- twins


@each("kind", KINDS, afresh=True)
async def test_of_fifty_twins_of_which_half_roll_back_one_job_is_left_and_all_have_its_id(
    t: Any, rig: Rig, database: str, kind: Any
) -> None:
    """F33. Whoever commits was told the id of the one job that is there, also if the first one rolled back."""

    async def client(connection: Any, n: int, key: str, rolls_back: bool) -> str:
        transaction = connection.transaction()
        await transaction.start()
        job = await t.using(key=key, unique=kind, connection=connection).enqueue(n=n)
        assert job.id
        await (transaction.rollback() if rolls_back else transaction.commit())
        return "" if rolls_back else str(job.id)

    async with AsyncExitStack() as stack:
        opened = [await asyncpg.connect(database) for _ in range(50)]
        for connection in opened:
            stack.push_async_callback(connection.close)
        for round_ in range(3):
            dice = [n % 2 == 0 for n in range(50)]
            random.shuffle(dice)
            clients = [client(c, n, f"k{round_}", dice[n]) for n, c in enumerate(opened)]
            async with asyncio.timeout(PATIENCE):
                told = {job_id for job_id in await asyncio.gather(*clients) if job_id}
            (active,) = [row[0] for row in await rig.fetch(ACTIVE)]
            assert told == {active}
            await rig.cancel(active)


async def test_of_many_enqueues_at_once_one_makes_the_job(t: Any, rig: Rig) -> None:
    made = await asyncio.gather(*(t.using(key="k").enqueue(n=n) for n in range(50)))
    assert [job.created for job in made].count(True) == 1
    assert {(job.id,) for job in made} == set(await rig.fetch(ACTIVE))


@each("commits", [True, False], afresh=True)
async def test_an_enqueue_waits_for_a_twin_that_is_not_committed(
    app: Rowlock, t: Any, rig: Rig, watcher: Any, commits: bool
) -> None:
    """Neither a second job, nor the id of one that never was."""
    asked = t.using(key="k")
    inside, go = asyncio.Event(), asyncio.Event()

    async def first() -> str:
        async with app.transaction() as tx:
            job = await asked.enqueue(n=1)
            inside.set()
            await go.wait()
            if not commits:
                await tx.execute("SELECT 1 / 0")
        return str(job.id)

    one = asyncio.create_task(first())
    await inside.wait()
    two = asyncio.create_task(asked.enqueue(n=2))
    await blocked(watcher, 1)
    go.set()
    answers = await asyncio.gather(one, two, return_exceptions=True)
    assert isinstance(answers[0], str) == commits
    assert answers[1].created != commits
    assert await rig.fetch(ACTIVE) == [(answers[1].id,)]
    assert not commits or answers[0] == answers[1].id


async def test_bulks_of_the_same_keys_in_opposite_orders_do_not_deadlock(
    t: Any, database: str, watcher: Any, rig: Rig
) -> None:
    """A third caller holds the middle key until both bulks wait: without one order for all they then wait for each
    other, whoever is first."""

    async def bulk(connection: Any, rows: list[dict[str, int]]) -> list[Any]:
        async with connection.transaction():
            return list(await t.using(key=lambda n: f"k{n:03d}", connection=connection).enqueue_many(rows))

    rows = [{"n": n} for n in range(100)]
    async with watching(database) as a, watching(database) as b, watching(database) as middle:
        holding = middle.transaction()
        await holding.start()
        await t.using(key="k050", connection=middle).enqueue()
        there, back = asyncio.create_task(bulk(a, rows)), asyncio.create_task(bulk(b, rows[::-1]))
        await blocked(watcher, 2)
        await holding.rollback()
        async with asyncio.timeout(PATIENCE):
            one, two = await asyncio.gather(there, back)
    assert [job.id for job in one] == [job.id for job in two[::-1]]
    assert sum(job.created for job in (*one, *two)) == 100
    assert len(await rig.fetch(ACTIVE)) == 100


async def test_a_retry_and_a_new_job_of_the_same_key_leave_one_active(rig: Rig, other: Store, watcher: Any) -> None:
    seen = set()
    few = [order for order in orders(5, 5) if order.count("AB") + order.count("BA") <= 2]
    for n, order in enumerate(few):
        new = NewJob(task="t", unique="until_done")
        dead = NewRow(rig.new_id(), "{}", f"k{n}", None)
        await rig.store.run(enqueue_jobs.enqueue_rows([dead], new))
        (job,) = await rig.claim()
        assert await rig.settle(job, Failed("E", "no", permanent=True)) == "applied"
        newer = dead._replace(id=rig.new_id())
        retry, enqueue = retries.retry([dead.id], 1), enqueue_jobs.enqueue_rows([newer], new)
        revived, found = await play(watcher, order, Actor(rig.store, retry), Actor(other, enqueue))
        (active,) = [row[0] for row in await rig.fetch(ACTIVE)]
        assert found == [(active, active == newer.id)], order
        assert revived == ({dead.id} if active == dead.id else set()), order
        seen.add(active == dead.id)
        await rig.cancel(active)
    assert seen == {True, False}  # both have won
