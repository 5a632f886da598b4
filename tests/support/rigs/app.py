"""Fixtures: an open app on a migrated database, in real time or with a fake clock and a rig on its store, and tasks for
batches. A test module or a conftest imports what it needs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.times import FakeClock
from rowlock.store import batches
from rowlock.store.jobs import claim
from support.rigs.rig import Rig


@pytest.fixture
async def app(database: str, clock: FakeClock) -> AsyncIterator[Rowlock]:
    async with Rowlock(database, clock=clock) as opened:
        yield opened


@pytest.fixture
def app_url(database: str) -> str:
    """Address of a migrated database without rows that only this test uses."""
    return database


@pytest.fixture(name="app")
async def app_in_real_time(app_url: str) -> AsyncIterator[Rowlock]:
    """An open app without tasks."""
    async with Rowlock(app_url) as opened:
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


async def sweep(rig: Rig) -> list[str]:
    """End what is complete, as a worker does after its settles and every sweeper does; answers which."""
    still_open = await rig.store.run(batches.still_open(claim.NO_ID, 1000))
    return await rig.store.run(batches.end(still_open))
