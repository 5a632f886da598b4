"""Two stores on one PostgreSQL database: two workers that meet."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock.core.clock import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine import StoreOptions
from support.interleave import watching
from support.stores import clock, database, rig, store, template

__all__ = ["clock", "database", "rig", "store", "template"]


@pytest.fixture(params=["postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def other(database: str, clock: FakeClock) -> AsyncIterator[Store]:
    """A second store on the same database."""
    opened = await open_store(database, StoreOptions(clock=clock))
    yield opened
    await opened.close()


@pytest.fixture
async def watcher(database: str) -> AsyncIterator[Any]:
    """A connection that belongs to neither."""
    async with watching(database) as connection:
        yield connection
