"""Fixtures: an app, and a rig on the same store; for races also a second store, and a look from outside."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.clock import FakeClock
from rowlock.store import Store, batches, jobs, open_store
from rowlock.store.engine import StoreOptions
from support.interleave import watching
from support.rig import Rig


@pytest.fixture
async def app(database: str, clock: FakeClock) -> AsyncIterator[Rowlock]:
    async with Rowlock(database, clock=clock) as opened:
        yield opened


@pytest.fixture
async def rig(app: Rowlock, clock: FakeClock) -> Rig:
    return Rig(await app.store(), clock)


@pytest.fixture
def t(app: Rowlock) -> Any:
    """A task with three tries."""

    @app.task("t", max_attempts=3)
    async def work(n: int = 0) -> None: ...

    return work


@pytest.fixture
def report(app: Rowlock) -> Any:
    """What a batch may have as its `on_end`."""

    @app.task("report", queue="reports", priority=7)
    async def report(batch: dict[str, Any]) -> None: ...

    return report


@pytest.fixture
async def other(database: str, clock: FakeClock) -> AsyncIterator[Store]:
    """A second store on the same database."""
    opened = await open_store(database, StoreOptions(clock=clock))
    yield opened
    await opened.close()


@pytest.fixture
async def watcher(database: str) -> AsyncIterator[Any]:
    async with watching(database) as connection:
        yield connection


async def sweep(rig: Rig) -> list[str]:
    """End what is complete, as a worker does after its settles and every sweeper does; answers which."""
    still_open = await rig.store.run(batches.still_open(jobs.NO_ID, 1000))
    return await rig.store.run(batches.end(still_open))
