"""What sources cost: nothing that grows with their number, and next to nothing while all of them are closed."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.claiming.ranges import Position
from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.operation import Call
from rowlock.store.engine.postgres.store import PostgresStore
from rowlock.store.engine.sqlite.runner import Runner
from rowlock.store.engine.statements import load
from rowlock.store.engine.store import StoreOptions
from rowlock.store.sources.sources import pause, resume, set_policy
from rowlock.worker.pool import WorkerPool
from support.each import each
from support.rigs.rig import Rig, claim_from, look, numbered, token
from support.rigs.source_work import LANES, enqueue, make_sources, pages, site, steps
from support.servers.postgres import PostgresDatabases


async def start_elsewhere(rig: Rig, count: int) -> None:
    """So many jobs that run, each of a source of its own."""
    sources = [f"domain:busy-{n:05}" for n in range(count)]
    await enqueue(rig.store, sources, 100_000, task="elsewhere")
    cursor, running = "", 0
    while running < count:
        heads = await rig.store.run(look([("default", "elsewhere")], 256, Position("default", "elsewhere", 0, cursor)))
        taken = await rig.store.run(claim_from("elsewhere", token(), heads, [], 256, 600))
        assert taken.jobs
        cursor, running = heads[-1].source, running + len(taken.jobs)


async def work_of_a_claim(rig: Rig, cursor: str) -> Counter[str]:
    """A look and a claim of ten jobs."""
    if rig.store.engine == "postgres":
        await rig.store.execute("VACUUM ANALYZE rowlock.jobs_live, rowlock.sources")  # no pages of dead rows
    async with (pages if rig.store.engine == "postgres" else steps)(rig.store) as (session, touched):
        heads = await session.run(look(LANES, 32, Position(*LANES[0], 0, cursor)))
        taken = await session.run(claim_from("w", token(), heads, [], 10, 60))
        assert (len(heads), len(taken.jobs)) == (32, 10)
    return touched


async def test_the_work_of_a_claim_does_not_grow_with_the_number_of_sources_or_of_running_jobs(rig: Rig) -> None:
    await rig.store.run(set_policy("domain", {"concurrency": 2, "rate": 6000.0}))
    work: list[Counter[str]] = []
    for first, last in ((0, 200), (200, 20_000)):
        added = [site(n) for n in range(first, last)]
        await rig.store.run(make_sources(added))
        await enqueue(rig.store, added, first)
        work.append(await work_of_a_claim(rig, site(last // 2)))
    await start_elsewhere(rig, 1024)
    work.append(await work_of_a_claim(rig, site(5000)))
    few, many, running = (touched.total() for touched in work)
    print(f"{few} for 200 sources, {many} for 20,000, {running} beside 1,024 that run; {[dict(each) for each in work]}")
    assert many < 2 * few  # an index of a hundred times as many rows is a level deeper
    assert running < 2 * few


class Statements(defaultdict[str, Counter[str]]):
    """Statements that stores have executed, by database. SQLite needs two for what is one on a server: they are one."""

    def note(self, url: str, name: str) -> None:
        self[url][name] += name in load("postgres")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    counted = Statements(Counter)
    on_postgres, on_sqlite = PostgresStore._execute, Runner.execute

    async def postgres(self: PostgresStore, connection: Any, call: Call) -> Any:
        counted.note(self._url, call.name)
        return await on_postgres(self, connection, call)

    def sqlite(self: Runner, call: Call) -> Any:
        counted.note(f"sqlite:///{self.connection.filename}", call.name)
        return on_sqlite(self, call)

    monkeypatch.setattr(PostgresStore, "_execute", postgres)
    monkeypatch.setattr(Runner, "execute", sqlite)
    return counted


@pytest.fixture
def second(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One more database."""
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/second.db"
        return
    server: PostgresDatabases = request.getfixturevalue("postgres_server")
    name = f"rowlock_second_{token()}"
    yield server.create_database(name, template=request.getfixturevalue("template"))
    server.drop_database(name)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Rowlock, Store]]:
    """An app whose jobs take 50 ms, and a store beside it."""
    beside = await open_store(url, StoreOptions())
    async with Rowlock(url) as app:

        async def work() -> None:
            await asyncio.sleep(0.05)

        for name in ("ant", "work", "zebra"):
            app.task(name)(work)
        yield app, beside
    await beside.close()


async def asleep(pool: WorkerPool) -> None:
    """Wait until a worker has looked everywhere, found nothing and looked again."""
    async with asyncio.timeout(20):
        while not (pool.held_up and pool.claimer.plan.drained):
            await asyncio.sleep(0.01)


async def block(beside: Store, how: str) -> None:
    """Jobs none of which may start: of one source that is full, or of fifty that are paused."""
    if how == "full":
        await beside.run(set_policy("api:full", {"concurrency": 1}))
        await enqueue(beside, ["api:full"], 1000, task="elsewhere")
        heads = await beside.run(look([("default", "elsewhere")], 1))
        assert len((await beside.run(claim_from("elsewhere", token(), heads, [], 1, 600))).jobs) == 1
        await enqueue(beside, ["api:full"] * 100)
    else:
        await beside.run(make_sources([site(n) for n in range(50)]))
        for n in range(50):
            await beside.run(pause(site(n), 3600.0))
        await enqueue(beside, [site(n) for n in range(50)] * 2)


# Written down once a minute: how long the queues are. A minute may begin while a test counts.
ONCE_A_MINUTE = Counter(
    [
        "begin_sample",
        "paused_queues",
        "live_workers",
        "lane_heads",
        "lane_sizes",
        "waiting_lanes",
        "running_lanes",
        "write_samples",
    ]
)


async def facing_blocked_jobs(url: str, how: str, statements: Statements) -> Counter[str]:
    """The statements of five idle seconds, without those of one minute that may begin in them."""
    async with opened(url) as (app, beside), app.worker() as pool:
        async with asyncio.timeout(20):
            while not statements[url]["prune_sources"]:  # what it does every ten minutes is done
                await asyncio.sleep(0.01)
        await block(beside, how)
        await asleep(pool)
        return await in_five_seconds(statements[url])


async def in_five_seconds(statements: Counter[str]) -> Counter[str]:
    """What the worker runs in five seconds, without what it runs once a minute. It goes on looking afterwards."""
    statements.clear()
    await asyncio.sleep(5)  # real seconds: the promise is a number of statements in a second
    counted = Counter(statements) - ONCE_A_MINUTE
    async with asyncio.timeout(60):  # five seconds may pass between two looks of a worker, or more on a busy machine
        while not statements:
            await asyncio.sleep(0.05)
    return counted


async def test_a_worker_that_faces_only_blocked_jobs_runs_at_most_two_statements_a_second(
    database: str, second: str, statements: Statements
) -> None:
    full, paused = await asyncio.gather(
        facing_blocked_jobs(database, "full", statements), facing_blocked_jobs(second, "paused", statements)
    )
    print(f"in 5 s: {dict(full)} and {dict(paused)}")
    assert full.total() <= 10
    assert paused.total() <= 10


# What a worker checks every 25 seconds: the clock of the database, and whether jobs wait for a task that nobody knows.
CHECKS = Counter(["clock", "put_sources_right", "put_leases_right", "live_workers", "waiting_lanes"])


async def test_an_idle_worker_runs_at_most_one_statement_a_second(database: str, statements: Statements) -> None:
    async with opened(database) as (app, _), app.worker() as pool:
        async with asyncio.timeout(20):
            while not statements[database]["prune_sources"] or not (pool.idle and pool.claimer.plan.drained):
                await asyncio.sleep(0.01)
        found = await in_five_seconds(statements[database])
    print(f"in 5 s: {dict(found)}")
    assert (found - CHECKS).total() <= 4, "one more on average is a check"


@each("where", ["alone", "before another task", "behind another task", "at a lower priority"], afresh=True)
async def test_a_worker_finds_the_one_free_source_among_2000_paused_ones_soon(
    rig: Rig, database: str, where: str
) -> None:
    free, last = site(1000), 10 if where == "at a lower priority" else 0
    async with opened(database) as (app, beside):
        sources = [site(n) for n in range(2000)]
        other = {"before another task": "zebra", "behind another task": "ant"}.get(where)
        few = [f"api:few-{n}" for n in range(40)] if other else []
        await beside.run(make_sources(sources + few))
        await rig.fetch("UPDATE {t}sources SET enabled = FALSE WHERE name LIKE '%:%'")
        await beside.run(resume(free))
        await enqueue(beside, [source for source in sources if source != free])
        await enqueue(beside, few, 4000, task=other or "")
        await enqueue(beside, [free], 5000, priority=last)
        async with app.worker() as pool:
            began = time.monotonic()
            await (await app.job(numbered(5000))).wait(timeout=10)
            took = [time.monotonic() - began]
            await asleep(pool)
            began = time.monotonic()
            await enqueue(beside, [free], 6000, priority=last)
            await (await app.job(numbered(6000))).wait(timeout=10)
            took.append(time.monotonic() - began)
    print(f"found after {took[0]:.2f} s of its start, and {took[1]:.2f} s after it came")
    assert max(took) < 6, "two on a machine that does nothing else; a look at all of them in turn takes eight"


async def test_a_full_source_with_20000_jobs_and_six_workers_is_not_claimed_over_and_over(
    database: str, statements: Statements
) -> None:
    async with opened(database) as (app, beside), AsyncExitStack() as workers:
        await beside.run(set_policy("api:full", {"concurrency": 4}))
        await enqueue(beside, ["api:full"] * 20_000)
        for _ in range(6):
            await workers.enter_async_context(app.worker(shutdown_timeout_seconds=1))
        done = "SELECT count(*) FROM {t}jobs_finished"
        outside = Rig(beside, FakeClock())
        async with asyncio.timeout(10):
            while (await outside.fetch(done))[0][0] < 8:
                await asyncio.sleep(0.01)
        statements.clear()
        ((before,),) = await outside.fetch(done)
        completions = 0
        async with asyncio.timeout(30):  # four slots of 50 ms that are kept busy take two seconds
            while completions < 160:
                await asyncio.sleep(0.05)
                counted = Counter(statements[database])
                completions = (await outside.fetch(done))[0][0] - before
    claims = counted["gates"] + counted["claim"]  # each claim of jobs with a source asks `gates` once
    print(f"{claims} claims and {counted['look']} looks for {completions} completions")
    assert claims <= 2 * completions
