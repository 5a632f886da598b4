"""The system on a database of its own, on each engine, with stand-in markets beside it."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rowlock import FakeClock, Rowlock
from rowlock.core.job import Job
from rowlock.core.states import FINAL
from rowlock.store.jobs.claim import Range, work_left
from rowlock.store.read.filter import JobFilter
from rowlock.testing import CLOSED_SECONDS, Testing
from rowlock_apps.coins import Coins
from rowlock_apps.coins.answer_cache import AnswerCache
from rowlock_apps.coins.markets import Markets
from support.rigs.answer_cache import Clock, Make
from support.servers.databases import CleanDatabases, databases_of
from support.servers.postgres import PostgresDatabases


@pytest.fixture(scope="session")
def coins_databases(postgres_server: PostgresDatabases) -> Iterator[CleanDatabases]:
    """Migrated PostgreSQL databases that are handed on from test to test: making one takes longer than most tests
    here."""
    with databases_of("coins", postgres_server, lambda url: asyncio.run(Coins(url).app.migrate())) as made:
        yield made


@pytest.fixture(scope="session")
def coins_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    file = tmp_path_factory.mktemp("coins") / "coins.db"
    asyncio.run(Coins(f"sqlite:///{file}").app.migrate())
    return file


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated database without rows that nobody else uses now."""
    if engine == "sqlite":
        shutil.copy(request.getfixturevalue("coins_file"), tmp_path / "coins.db")
        yield f"sqlite:///{tmp_path}/coins.db"
        return
    with request.getfixturevalue("coins_databases").lend() as lent:
        yield lent


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell says about caches and workers is not for tests."""
    for name in list(os.environ):
        if name.startswith(("ROWLOCK_", "CACHE_")) or name == "WORKER_ID":
            monkeypatch.delenv(name)


class OneWorker(Testing):
    """`drain` with one worker for the whole test: to start and stop one each time takes longer than its work."""

    def __init__(self, app: Rowlock, clock: FakeClock, exits: AsyncExitStack) -> None:
        super().__init__(app, clock)
        self._exits, self._pool, self._seen = exits, None, set[str]()

    async def drain(self, **_: object) -> list[Job]:
        """Run everything that is due; what waits for a source that is closed stays."""
        if self._pool is None:
            options = {"pool_size": 1, "poll_interval_seconds": 0.02, "shutdown_timeout_seconds": 5}
            self._pool = await self._exits.enter_async_context(self.app.worker(**options))
        self._pool.claimer.woken()  # it has seen closed sources, and cannot know that the clock was moved
        store, lanes = await self.app.store(), [Range("coins", "coins.scrape")]
        closed_since = deadline = time.monotonic()
        while await store.run(work_left(lanes)):
            closed_since = closed_since if self._pool.held_up else time.monotonic()
            if time.monotonic() > closed_since + CLOSED_SECONDS:
                break
            assert time.monotonic() < deadline + 30, "jobs were still running after 30 s"
            await asyncio.sleep(0.005)
        finished = [job for job in await self._jobs(JobFilter(states=tuple(FINAL))) if job.id not in self._seen]
        self._seen |= {job.id for job in finished}
        return finished


@pytest.fixture
def coins(url: str, tmp_path: Path) -> Coins:
    return Coins(url, cache_file=tmp_path / "cache.db")


@pytest.fixture
async def t(coins: Coins) -> AsyncIterator[Testing]:
    """Time that stands still, and `drain` to run what is due."""
    clock = coins.app.clock = FakeClock()
    async with coins.app, AsyncExitStack() as exits:
        yield OneWorker(coins.app, clock, exits)


@pytest.fixture
async def markets() -> AsyncIterator[Markets]:
    async with Markets() as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def make(tmp_path: Path, clock: Clock) -> AsyncIterator[Make]:
    """Caches on one file, each as another process would have it."""
    made: list[AnswerCache] = []

    def one(path: Path = tmp_path / "answers.db", **options: Any) -> AnswerCache:
        made.append(AnswerCache(path, **{"clock": clock} | options))
        return made[-1]

    yield one
    for cache in made:
        await cache.close()
