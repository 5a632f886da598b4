"""Forgetting: what is past its day goes, nothing else does, and nobody who works is kept waiting for it."""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from rowlock import Rowlock
from rowlock.core.job import NewJob
from rowlock.core.outcome import Failed
from rowlock.core.policy import DAY
from rowlock.store import Store, jobs, open_store, reads, retention
from rowlock.store.engines.engine import StoreOptions
from rowlock.store.engines.operation import Operation
from rowlock.store.jobs import Keep
from rowlock.store.retention import Pace, Partitions, ensure_partitions, prune
from support.rig import KEEP, Rig, token
from support.sources_rig import claim_turns, sources

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
TODAY = date(2026, 1, 1)  # where the fake clock starts
# Whether somebody waits for a lock in this database: pg_locks shows those of all tests on the server.
IN_LINE = (
    "SELECT 1 FROM pg_locks WHERE NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Watched:
    """A store that remembers what each operation answered, and lets a test step in between two statements of a
    change to the schema. Such a change is one DO block, so the test makes it wait for a lock in there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.answers: list[tuple[str, Any]] = []
        self.executed: list[str] = []
        self.after: str = ""
        self.step_in: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, op: Operation[Any]) -> Any:
        answer = await self._store.run(op)
        self.answers.append((op.name, answer))
        return answer

    async def execute(self, sql: str) -> None:
        self.executed.append(sql)
        if self.step_in is None:
            await self._store.execute(sql)
            return
        end = sql.index(";", sql.index(self.after)) + 1
        gated = f"{sql[:end]} PERFORM pg_advisory_xact_lock(4242); {sql[end:]}".replace("'200ms'", "'20s'")
        async with self._store.transaction() as gate:
            await gate.execute("SELECT pg_advisory_xact_lock(4242)")
            changing = asyncio.create_task(self._store.execute(gated))
            async with asyncio.timeout(10):
                while not await gate.fetch(f"{IN_LINE} AND locktype = 'advisory'"):
                    await asyncio.sleep(0.01)
            await self.step_in()
        await changing


async def dead(rig: Rig, **options: Any) -> str:
    """A job that failed for good, with one row in `attempts`."""
    job = await rig.running(**options)
    await rig.settle(job, Failed("E", "x", permanent=True))
    return job.id


async def cancelled(rig: Rig, count: int, **options: Any) -> list[str]:
    ids = await rig.enqueue_many(count, **options)
    await rig.cancel(*ids)
    return ids


async def left(rig: Rig, table: str = "jobs") -> int:
    return int((await rig.fetch(f"SELECT count(*) FROM {{t}}{table}"))[0][0])


async def partitions(rig: Rig) -> list[str]:
    of = "WHERE inhparent = 'rowlock.jobs_finished'::regclass"
    rows = await rig.fetch(f"SELECT inhrelid::regclass::text FROM pg_inherits {of} ORDER BY 1")
    return [row[0].removeprefix("rowlock.jobs_finished_") for row in rows]


def days(first: int, last: int) -> list[str]:
    return [f"{TODAY + timedelta(n):%Y%m%d}" for n in range(first, last + 1)]


# --- both engines


async def test_a_job_goes_on_its_day_and_not_before(rig: Rig) -> None:
    await ensure_partitions(rig.store)
    await rig.succeed(await rig.running())
    await dead(rig)
    await dead(rig, keep_seconds=90 * DAY)
    await rig.enqueue(delay=999 * DAY)
    counts = []
    for day in (7, 8, 30, 31, 90, 91):
        rig.clock.move(timedelta(days=day) - (rig.clock.now().date() - TODAY))
        await prune(rig.store)
        counts.append(await left(rig))
    assert counts == [4, 3, 3, 2, 2, 1], "kept for 7, 30 and 90 whole days; a live job for ever"


async def test_pruning_twice_finds_nothing_more(rig: Rig) -> None:
    await cancelled(rig, 5)
    rig.clock.move(31 * DAY)
    assert (await prune(rig.store)).jobs == 5
    before = await rig.everything()
    again = await prune(rig.store)
    assert (again.partitions, again.jobs, again.attempts, again.keys, again.busy) == ((), 0, 0, 0, False)
    assert await rig.everything() == before


async def test_rows_are_deleted_in_batches_of_a_thousand_at_most(rig: Rig) -> None:
    await cancelled(rig, 2_500)
    rig.clock.move(31 * DAY)
    watched = Watched(rig.store)
    pruned = await prune(watched)
    batches = [answer for name, answer in watched.answers if name == "_batch"]
    assert pruned.jobs == sum(batches) == 2_500
    assert max(batches) <= 1_000
    assert len(batches) >= 3


async def test_pruning_lets_other_writers_in_between_two_batches(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await cancelled(rig, 60)
    rig.clock.move(31 * DAY)
    monkeypatch.setattr(retention, "BATCH", 10)
    pruning = asyncio.create_task(prune(rig.store))
    turns = 0
    while not pruning.done():
        await rig.enqueue()
        turns += not pruning.done()
    assert (await pruning).jobs == 60
    assert turns >= 2


def test_a_slow_batch_makes_the_next_one_smaller_and_a_quick_one_larger() -> None:
    pace, sizes = Pace(), []
    for took in (0.01, 0.06, 0.2, 0.03, 0.001, 0.001, 0.001, *[9.9] * 10):
        pace.learn(took)
        sizes.append(pace.size)
    assert sizes[:7] == [1_000, 500, 250, 250, 500, 1_000, 1_000]
    assert sizes[-1] == retention.SMALLEST_BATCH


async def test_attempts_go_when_they_are_old_and_their_job_is_gone(rig: Rig) -> None:
    gone, kept = await dead(rig), await dead(rig, keep_seconds=90 * DAY)
    waiting = await rig.running(max_attempts=9)
    await rig.settle(waiting, Failed("E", "x"))
    rig.clock.move(31 * DAY)
    young = await dead(rig, keep_seconds=1)
    assert (await prune(rig.store)).attempts == 1
    rig.clock.move(3 * DAY)
    assert (await prune(rig.store)).attempts == 0, "the job is gone, but its attempt is not old"
    found = await rig.fetch("SELECT job_id FROM {t}attempts ORDER BY job_id")
    assert [row[0] for row in found] == [kept, waiting.id, young]
    assert gone not in await rig.rows()
    assert (await prune(rig.store, Keep(DAY, 2 * DAY))).attempts == 1, "old is what the longest keep says"


async def start_one(rig: Rig, source: str) -> bool:
    """Whether a job of the source may start; if so, it ends by a mistake of its own."""
    job_id = await rig.enqueue(source=source)
    jobs = await claim_turns(rig, 1)
    for job in jobs:
        await rig.settle(job, Failed("BUG", "x", permanent=True))
    if not jobs:
        await rig.cancel(job_id)
    return bool(jobs)


async def test_a_source_that_is_in_use_keeps_its_row_and_so_its_bucket(rig: Rig) -> None:
    await sources(rig).set("api", rate="1/hour", burst=1)
    assert await start_one(rig, "api:a")
    rig.clock.move(40 * DAY)
    assert await start_one(rig, "api:a"), "an old row, whose source had neither success nor failure of its own"
    await prune(rig.store)
    assert not await start_one(rig, "api:a")
    rig.clock.move(31 * DAY)
    await prune(rig.store)
    assert [source.name for source in await sources(rig).list()] == ["api", "domain"]


async def test_a_source_keeps_its_row_until_its_bucket_is_full(rig: Rig) -> None:
    await sources(rig).set("api", rate="1/hour", burst=24 * 40)
    for _ in range(3):
        assert await start_one(rig, "api:a")
    for day, there in ((35, True), (41, False)):
        rig.clock.move(timedelta(days=day) - (rig.clock.now().date() - TODAY))
        await prune(rig.store)
        assert ("api:a" in [source.name for source in await sources(rig).list()]) == there


async def test_attempts_that_stay_do_not_hide_those_that_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    for _ in range(3):  # all at one moment, so that the order within it matters
        for _ in range(3):
            await dead(rig, keep_seconds=90 * DAY)
        await dead(rig)
    rig.clock.move(31 * DAY)
    assert (await prune(rig.store)).attempts == 3
    assert await left(rig, "attempts") == 9


async def test_keys_go_when_they_run_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "KEYS_AT_ONCE", 3)
    await rig.store.run(jobs.enqueue_once(rig.new_id(), "{}", NewJob(task="t")))
    for n in range(8):
        expires = rig.clock.now() + timedelta(seconds=60 if n < 7 else 61)
        async with rig.store.transaction() as tx:
            table = {"postgres": "rowlock.job_keys", "sqlite": "rowlock_job_keys"}[rig.store.engine]
            await tx.execute(
                f"INSERT INTO {table} (scope, key, job_id, mode, expires_at) VALUES ('k', $1, $2, 'm', $3)",
                str(n),
                token(),
                expires if rig.store.engine == "postgres" else expires.timestamp(),
            )
    rig.clock.move(59)
    assert (await prune(rig.store)).keys == 0
    rig.clock.move(1)
    assert (await prune(rig.store)).keys == 7
    assert [row[0] for row in await rig.fetch("SELECT scope FROM {t}job_keys ORDER BY scope")] == ["id", "k"]


async def test_a_job_that_is_pruned_can_no_longer_be_read_or_retried(rig: Rig) -> None:
    job_id = await dead(rig)
    rig.clock.move(31 * DAY)
    await prune(rig.store)
    assert await rig.store.run(reads.get(job_id)) is None
    assert await rig.retry(job_id) == set()


# --- partitions


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_without_partitions_there_is_nothing_to_ensure(rig: Rig) -> None:
    assert await ensure_partitions(rig.store) == Partitions()


@on_postgres
async def test_each_day_ahead_gets_its_partition_once(rig: Rig) -> None:
    made = await ensure_partitions(rig.store, 3)
    assert made.created == tuple(f"jobs_finished_{day}" for day in days(1, 4))
    assert await partitions(rig) == [*days(1, 4), "default"]
    assert await ensure_partitions(rig.store, 3) == Partitions()
    rig.clock.move(DAY)
    assert (await ensure_partitions(rig.store, 3)).created == (f"jobs_finished_{days(5, 5)[0]}",)


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
    assert (made.skipped, made.allowed, made.busy) == ((TODAY + timedelta(31),), True, False)
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
    assert made.skipped == (TODAY + timedelta(2),)
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
    created = [name for one in made for name in one.created]
    assert sorted(created) == [f"jobs_finished_{day}" for day in days(1, 10)]
    assert not any(one.busy or one.skipped for one in made)
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
    assert len((await ensure_partitions(watched, 0)).created) == 1
    assert await settling[0] == "applied"
    assert await left(rig, f"jobs_finished_{days(1, 1)[0]}") == 1


@on_postgres
async def test_who_reads_finished_jobs_is_not_in_the_way_of_a_new_partition_for_long(rig: Rig) -> None:
    async with rig.store.transaction() as tx:
        await tx.fetch("SELECT count(*) FROM rowlock.jobs_finished")
        async with asyncio.timeout(10):
            made = await ensure_partitions(rig.store, 2)
        assert (made.created, made.busy, made.allowed) == ((), True, True), "a long reader is not waited for"
        assert await dead(rig), "and no writer is kept waiting"
    assert len((await ensure_partitions(rig.store, 2)).created) == 3


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
    assert await ensure_partitions(guest.store) == Partitions(allowed=False)
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
    assert max(KEEP) / DAY + 2 == retention.DAYS_AHEAD
