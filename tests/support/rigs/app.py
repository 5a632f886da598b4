"""Fixtures: an open app on a migrated database, in real time or with a fake clock and a rig on its store, and tasks for
batches. A test module or a conftest imports what it needs."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rowlock import Batch, Rowlock
from rowlock.core.times import FakeClock
from rowlock.store import Store, batches
from rowlock.store.jobs import claim
from support.files.functions import FunctionRig, FunctionStore, fake_world
from support.rigs.rig import Rig
from support.rigs.stores import FUNCTIONS


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
async def rig(app: Rowlock, clock: FakeClock, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A rig on the app's store. On the engine of the SQL functions they do what the test does by this rig, and Python
    does what it does by the app."""
    store = await app.store()
    if "engine" in request.fixturenames and request.getfixturevalue("engine") == FUNCTIONS:
        async with fake_world(app.database):
            yield FunctionRig(cast(Store, FunctionStore(store, clock)), clock)
    else:
        yield Rig(store, clock)


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


async def ends_now(rig: Rig, batch: Batch) -> bool:
    """Whether a batch whose last job is settled ends, and was open until now: at the sweep, which answers its id. A SQL
    function that settles the last job ends the batch at once, and the sweep finds nothing."""
    found = await sweep(rig)
    await batch.refresh()
    return batch.over and found == ([] if isinstance(rig, FunctionRig) else [batch.id])


async def sweep(rig: Rig) -> list[str]:
    """End what is complete, as a worker does after its settles and every sweeper does; answers which."""
    still_open = await rig.store.run(batches.still_open(claim.NO_ID, 1000))
    return await rig.store.run(batches.end(still_open))
