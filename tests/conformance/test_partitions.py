"""Partitions of finished jobs on PostgreSQL: made ahead, dropped whole, and done without where a role may not."""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import pytest

from rowlock import Rowlock
from rowlock.core.outcome import Failed
from rowlock.core.policy import DAY
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from rowlock.store.upkeep.partitions import DAYS_AHEAD, ensure_partitions
from rowlock.store.upkeep.retention import prune
from support.rigs.retention import IN_LINE, TODAY, Watched, cancelled, dead, left
from support.rigs.rig import KEEP, Rig

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


async def partitions(rig: Rig) -> list[str]:
    of = "WHERE inhparent = 'rowlock.jobs_finished'::regclass"
    rows = await rig.fetch(f"SELECT inhrelid::regclass::text FROM pg_inherits {of} ORDER BY 1")
    return [row[0].removeprefix("rowlock.jobs_finished_") for row in rows]


def days(first: int, last: int) -> list[str]:
    return [f"{TODAY + timedelta(n):%Y%m%d}" for n in range(first, last + 1)]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_without_partitions_there_is_nothing_to_ensure(rig: Rig) -> None:
    assert await ensure_partitions(rig.store) == {}


@on_postgres
async def test_each_day_ahead_gets_its_partition_once(rig: Rig) -> None:
    assert await ensure_partitions(rig.store, 3) == {TODAY + timedelta(n): "created" for n in (1, 2, 3, 4)}
    assert await partitions(rig) == [*days(1, 4), "default"]
    assert await ensure_partitions(rig.store, 3) == {}
    rig.clock.move(DAY)
    assert await ensure_partitions(rig.store, 3) == {TODAY + timedelta(5): "created"}


async def test_a_worker_makes_its_partitions_before_its_first_claim(postgres_url: str) -> None:
    """A first row in the default partition would keep its whole day there."""
    app = Rowlock(postgres_url)

    @app.task
    async def done() -> None: ...

    await app.migrate()
    async with app:
        await done.enqueue_many([{}] * 20)
        async with app.worker() as pool:
            deadline = time.monotonic() + 20
            while not pool.idle:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
        async with app.transaction() as session:
            ((in_default,),) = await session.fetch("SELECT count(*) FROM rowlock.jobs_finished_default")
            ((finished,),) = await session.fetch("SELECT count(*) FROM rowlock.jobs_finished")
    assert (in_default, finished) == (0, 20)


@on_postgres
async def test_a_partition_is_like_the_others_in_all_but_its_day(rig: Rig) -> None:
    await ensure_partitions(rig.store, 0)
    rows = await rig.fetch("SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'rowlock'")
    indexes = {table: set() for table, _ in rows}
    for table, text in rows:
        indexes[table].add(text.partition(" USING ")[2])
    day = f"jobs_finished_{days(1, 1)[0]}"
    assert indexes[day] == indexes["jobs_finished"]
    assert indexes[day] < indexes["jobs_finished_default"], "which is also asked by day"


@on_postgres
async def test_finished_jobs_go_to_their_days_partition_and_with_it(rig: Rig) -> None:
    await ensure_partitions(rig.store)
    await cancelled(rig, 3)
    await cancelled(rig, 2, keep_seconds=60 * DAY)
    await rig.succeed(await rig.running())
    where = "SELECT tableoid::regclass::text, count(*) FROM rowlock.jobs_finished GROUP BY 1 ORDER BY 1"
    (success,), (failure,) = days(8, 8), days(31, 31)
    assert await rig.fetch(where) == [
        (f"rowlock.jobs_finished_{success}", 1),
        (f"rowlock.jobs_finished_{failure}", 3),
        ("rowlock.jobs_finished_default", 2),
    ]
    rig.clock.move(31 * DAY)
    pruned = await prune(rig.store)
    assert pruned.partitions == tuple(f"jobs_finished_{day}" for day in days(1, 31))
    assert pruned.jobs == 0, "dropped, not deleted"
    assert await rig.fetch(where) == [("rowlock.jobs_finished_default", 2)]
    assert await partitions(rig) == [*days(32, 33), "default"]


@on_postgres
async def test_a_day_with_rows_in_the_default_partition_stays_there(rig: Rig) -> None:
    await cancelled(rig, 3)
    watched = Watched(rig.store)
    made = await ensure_partitions(watched, 32)
    assert {day: answer for day, answer in made.items() if answer != "created"} == {TODAY + timedelta(31): "taken"}
    tried = [
        found[1] for sql in watched.executed if (found := re.search(r"CREATE TABLE rowlock.jobs_finished_(\d+)", sql))
    ]
    assert tried == [*days(1, 30), *days(32, 33)], "what cannot succeed is not tried"
    assert await partitions(rig) == [*days(1, 30), *days(32, 33), "default"]
    await cancelled(rig, 2)
    assert await left(rig, "jobs_finished_default") == 5
    rig.clock.move(31 * DAY)
    assert (await prune(rig.store)).jobs == 5


@on_postgres
async def test_a_day_whose_first_row_comes_just_now_stays_in_the_default_partition(rig: Rig) -> None:
    watched = Watched(rig.store)

    async def finish_meanwhile() -> None:
        if not await left(rig):
            await cancelled(rig, 2, keep_seconds=DAY)

    watched.after, watched.step_in = "CREATE TABLE", finish_meanwhile
    made = await ensure_partitions(watched, 2)
    assert [day for day, answer in made.items() if answer == "taken"] == [TODAY + timedelta(2)]
    assert await partitions(rig) == [*days(1, 1), *days(3, 3), "default"]
    assert await left(rig, "jobs_finished_default") == 2


@on_postgres
async def test_four_at_once_make_each_partition_once(database: str, rig: Rig) -> None:
    stores = [await open_store(database, StoreOptions(clock=rig.clock)) for _ in range(4)]
    try:
        made = await asyncio.gather(*(ensure_partitions(store, 9) for store in stores))
    finally:
        for store in stores:
            await store.close()
    created = [day for one in made for day, answer in one.items() if answer == "created"]
    assert sorted(created) == [TODAY + timedelta(n) for n in range(1, 11)]
    assert {answer for one in made for answer in one.values()} <= {"created", "there"}
    assert await partitions(rig) == [*days(1, 10), "default"]


@on_postgres
async def test_a_writer_on_its_way_into_the_default_partition_does_not_fail(rig: Rig) -> None:
    """The row has no partition when its statement starts, and has one when it is written."""
    job = await rig.running(keep_seconds=0)
    watched, settling = Watched(rig.store), []

    async def settle_meanwhile() -> None:
        settling.append(asyncio.create_task(rig.settle(job, Failed("E", "x", permanent=True))))
        async with asyncio.timeout(10):
            while not await rig.fetch(f"{IN_LINE} AND locktype = 'relation'"):
                await asyncio.sleep(0.01)

    watched.after, watched.step_in = "ATTACH", settle_meanwhile
    assert await ensure_partitions(watched, 0) == {TODAY + timedelta(1): "created"}
    assert await settling[0] == "applied"
    assert await left(rig, f"jobs_finished_{days(1, 1)[0]}") == 1


@on_postgres
async def test_who_reads_finished_jobs_is_not_in_the_way_of_a_new_partition_for_long(rig: Rig) -> None:
    async with rig.store.transaction() as tx:
        await tx.fetch("SELECT count(*) FROM rowlock.jobs_finished")
        async with asyncio.timeout(10):
            made = await ensure_partitions(rig.store, 2)
        assert list(made.values()) == ["busy"], "a long reader is not waited for"
        assert await dead(rig), "and no writer is kept waiting"
    assert list((await ensure_partitions(rig.store, 2)).values()) == ["created"] * 3


@on_postgres
async def test_a_partition_that_somebody_reads_is_dropped_the_next_time(rig: Rig) -> None:
    await ensure_partitions(rig.store, 31)
    await cancelled(rig, 3)
    rig.clock.move(31 * DAY)
    async with rig.store.transaction() as tx:
        await tx.fetch(f"SELECT count(*) FROM rowlock.jobs_finished_{days(31, 31)[0]}")
        async with asyncio.timeout(10):
            pruned = await prune(rig.store)
        assert (pruned.partitions, pruned.jobs, pruned.busy) == (
            tuple(f"jobs_finished_{day}" for day in days(1, 30)),
            0,
            True,
        )
    assert (await prune(rig.store)).partitions == (f"jobs_finished_{days(31, 31)[0]}",)
    assert await left(rig) == 0


# --- a role that may only use the tables


@pytest.fixture
async def guest(database: str, rig: Rig) -> AsyncIterator[Rig]:
    name, password = f"rowlock_guest_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    async with rig.store.transaction() as tx:
        await tx.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        await tx.execute(f"GRANT USAGE ON SCHEMA rowlock TO {name}")
        await tx.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rowlock TO {name}")
    address = urlsplit(database)
    host = re.sub(r"^.*@", "", address.netloc)
    url = urlunsplit(address._replace(netloc=f"{name}:{password}@{host}"))
    store = await open_store(url, StoreOptions(clock=rig.clock))
    guest = Rig(store, rig.clock)
    guest.new_id = rig.new_id  # one row of ids for both
    yield guest
    await store.close()
    async with rig.store.transaction() as tx:
        await tx.execute(f"DROP OWNED BY {name}")
        await tx.execute(f"DROP ROLE {name}")


@on_postgres
async def test_a_role_that_may_not_create_does_without_partitions(guest: Rig) -> None:
    assert list((await ensure_partitions(guest.store)).values()) == ["denied"]
    await cancelled(guest, 1_200)
    assert await left(guest, "jobs_finished_default") == 1_200
    guest.clock.move(31 * DAY)
    assert (await prune(guest.store)).jobs == 1_200
    assert await left(guest) == 0


@on_postgres
async def test_a_role_that_may_not_drop_deletes(rig: Rig, guest: Rig) -> None:
    await ensure_partitions(rig.store)
    await cancelled(guest, 1_200)
    await cancelled(rig, 3, keep_seconds=40 * DAY)
    assert await left(rig, "jobs_finished_default") == 3
    guest.clock.move(31 * DAY)
    pruned = await prune(guest.store)
    assert (pruned.partitions, pruned.jobs, pruned.busy) == ((), 1_200, False)
    assert await left(rig) == 3


async def test_keep_has_the_defaults_that_partitions_are_made_for() -> None:
    assert max(KEEP) / DAY + 2 == DAYS_AHEAD
