"""Who meets in a race between two stores, and who looks on."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.store import StoreOptions
from support.races.interleave import watching


@pytest.fixture
async def other(database: str, clock: FakeClock) -> AsyncIterator[Store]:
    """A second store on the database of `rig`."""
    opened = await open_store(database, StoreOptions(clock=clock))
    yield opened
    await opened.close()


@pytest.fixture
async def watcher(database: str) -> AsyncIterator[Any]:
    """A connection of neither store: it sees what is committed, and which sessions wait for a lock."""
    async with watching(database) as connection:
        yield connection
