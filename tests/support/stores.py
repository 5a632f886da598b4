"""Fixtures: a store on a fresh, migrated database for each test, on each engine.

PostgreSQL copies one migrated template; SQLite makes a new file. A conftest imports what it needs from here.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rowlock.core.clock import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine import StoreOptions
from support.rig import Rig
from support.server import PostgresDatabases

ENGINES = ["sqlite", "postgres"]


@pytest.fixture(scope="session")
def template(postgres_server: PostgresDatabases) -> Iterator[str]:
    """Name of a migrated database; nobody is connected to it, so that it can be copied."""
    name = f"rowlock_template_{os.getpid()}_{uuid.uuid4().hex[:8]}"

    async def migrate(url: str) -> None:
        store = await open_store(url, StoreOptions(migrate=True))
        await store.close()

    asyncio.run(migrate(postgres_server.create_database(name)))
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated database that only this test uses."""
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        for file in tmp_path.glob("jobs.db*"):
            file.unlink()
        return
    server: PostgresDatabases = request.getfixturevalue("postgres_server")
    name = f"rowlock_test_{os.getpid()}_{uuid.uuid4().hex[:12]}"
    yield server.create_database(name, template=request.getfixturevalue("template"))
    server.drop_database(name)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(database: str, clock: FakeClock) -> AsyncIterator[Store]:
    opened = await open_store(database, StoreOptions(clock=clock))
    yield opened
    await opened.close()


@pytest.fixture
def rig(store: Store, clock: FakeClock) -> Rig:
    return Rig(store, clock)
