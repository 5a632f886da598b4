"""Keys and other people's transactions: a long one holds up nobody, and one that cannot see its twin is told so."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from rowlock import KeyConflict, Rowlock
from rowlock.core.outcome import Failed
from support.each import each
from support.races.interleave import watching
from support.rigs.app import app, rig
from support.rigs.rig import Rig

__all__ = ["app", "rig"]  # fixtures

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

KINDS = ["until_done", "while_queued", "forever", timedelta(hours=1)]
ACTIVE = "SELECT CAST(id AS text) FROM {t}jobs_live"


@pytest.fixture
def t(app: Rowlock) -> Any:
    @app.task("t")
    async def work(n: int = 0) -> None: ...

    return work


@each("kind", KINDS, afresh=True)
async def test_a_duplicate_in_a_long_transaction_does_not_hold_up_the_first_job(
    app: Rowlock, t: Any, rig: Rig, kind: Any
) -> None:
    asked = t.using(key="k", unique=kind)
    first = await asked.enqueue()
    async with app.transaction():
        assert (await asked.enqueue()).id == first.id
        async with asyncio.timeout(5):
            (job,) = await rig.claim()
            assert await rig.settle(job, Failed("E", "no", permanent=True)) == "applied"
            assert await rig.state(first.id) == "dead"


ISOLATION = ["REPEATABLE READ", "SERIALIZABLE"]


async def asyncpg_caller(url: str, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(watching(url))


async def psycopg_async_caller(url: str, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))


async def psycopg_caller(url: str, stack: AsyncExitStack) -> Any:
    return stack.enter_context(psycopg.connect(url, autocommit=True))


async def do(connection: Any, sql: str) -> None:
    done = connection.execute(sql)
    if hasattr(done, "__await__"):
        await done


@each("isolation", ISOLATION)
@each(
    "caller",
    [asyncpg_caller, psycopg_async_caller, psycopg_caller],
    ids=["asyncpg", "psycopg async", "psycopg"],
    afresh=True,
)
async def test_a_transaction_that_cannot_see_its_twin_is_told_so_by_name(
    t: Any, rig: Rig, database: str, caller: Any, isolation: str
) -> None:
    async with AsyncExitStack() as stack:
        connection = await caller(database, stack)
        asked, mine = t.using(key="k"), t.using(key="k", connection=connection)
        await do(connection, f"BEGIN ISOLATION LEVEL {isolation}")
        await do(connection, "SELECT count(*) FROM rowlock.jobs_live")  # from now on it sees nothing new
        first = await asked.enqueue(n=1)
        with pytest.raises(KeyConflict, match="again"):
            await mine.enqueue(n=2)
        await do(connection, "ROLLBACK")
        assert await rig.fetch(ACTIVE) == [(first.id,)]
        await do(connection, f"BEGIN ISOLATION LEVEL {isolation}")
        again = await mine.enqueue(n=3)
        free = await t.using(key="free", connection=connection).enqueue()
        await do(connection, "COMMIT")
    assert (again.id, again.created, free.created) == (first.id, False, True)


@each("isolation", ISOLATION)
async def test_a_transaction_that_cannot_see_its_batch_sealed_is_told_of_the_batch(
    app: Rowlock, t: Any, database: str, isolation: str
) -> None:
    async with AsyncExitStack() as stack, app.batch("b") as batch:
        connection = await asyncpg_caller(database, stack)
        await do(connection, f"BEGIN ISOLATION LEVEL {isolation}")
        await do(connection, "SELECT count(*) FROM rowlock.jobs_live")
        await batch.seal()
        with pytest.raises(KeyConflict, match="or the batch changed"):
            await t.using(batch=batch, connection=connection).enqueue(n=2)
        await do(connection, "ROLLBACK")


async def test_a_key_that_a_repeatable_read_transaction_cannot_see_is_a_key_conflict_in_app_transaction(
    app: Rowlock, t: Any
) -> None:
    for bulk in (False, True):
        with pytest.raises(KeyConflict, match="again"):
            async with app.transaction() as tx:
                await tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                await tx.fetch("SELECT count(*) FROM rowlock.jobs_live")
                await asyncio.create_task(_outside(t, f"k{bulk}"))
                if bulk:
                    await t.using(key=lambda n: f"k{bulk}").enqueue_many([{"n": 1}])
                else:
                    await t.using(key=f"k{bulk}").enqueue()


async def _outside(t: Any, key: str) -> None:
    async with Rowlock(t.app.settings.database) as another:

        @another.task("t")
        async def work(n: int = 0) -> None: ...

        await work.using(key=key).enqueue()


def test_an_enqueue_on_a_sync_connection_honours_keys(database: str) -> None:
    app = Rowlock(database)

    @app.task("t")
    def work(n: int) -> None: ...

    with psycopg.connect(database) as connection:
        asked = work.using(key="k", connection=connection)
        first, second = asked.enqueue_sync(n=1), asked.enqueue_sync(n=2)
        connection.rollback()
        third, fourth = asked.enqueue_sync(n=3), asked.enqueue_sync(n=4)
        connection.commit()
    assert [job.created for job in (first, second, third, fourth)] == [True, False, True, False]
    assert (first.id, third.id) == (second.id, fourth.id)
    assert first.id != third.id
    assert [job.args for job in (second, fourth)] == [{"n": 1}, {"n": 3}], "it is the first job, in all that it shows"
