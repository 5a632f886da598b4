"""Fixtures: a store on a fresh, migrated database for each test, on each engine.

Both are copies of a migrated template; PostgreSQL databases are also emptied and used again. The fixtures are those of
`tests/conftest.py`; a test that wants one engine says `@pytest.mark.parametrize("engine", ["postgres"])`.
"""

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.store import StoreOptions
from support.files.functions import FunctionRig, FunctionStore, fake_world
from support.rigs.rig import Rig
from support.servers.databases import CleanDatabases
from support.servers.postgres import PostgresDatabases

ENGINES = ["sqlite", "postgres"]
FUNCTIONS = "functions"  # PostgreSQL through its SQL functions; tests/conformance/conftest.py says for which tests
_CLEAN: dict[str, CleanDatabases] = {}  # by template


@pytest.fixture(scope="session")
def template(postgres_server: PostgresDatabases) -> Iterator[str]:
    """Name of a migrated database; nobody is connected to it, so that it can be copied."""
    name = f"rowlock_template_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    asyncio.run(_migrate(postgres_server.create_database(name)))
    _CLEAN[name] = CleanDatabases(postgres_server, name)
    yield name
    _CLEAN.pop(name).close()
    postgres_server.drop_database(name)


async def _migrate(url: str) -> None:
    store = await open_store(url, StoreOptions(migrate=True))
    await store.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file. A copy is ready in 2 ms, a new file that is migrated in 70."""
    file = tmp_path_factory.mktemp("template") / "jobs.db"
    asyncio.run(_migrate(f"sqlite:///{file}"))
    return file


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated SQLite file that only this test uses."""
    shutil.copy(sqlite_template, tmp_path / "jobs.db")
    yield f"sqlite:///{tmp_path}/jobs.db"
    for file in tmp_path.glob("jobs.db*"):
        file.unlink()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(engine: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a migrated database that only this test uses."""
    if engine == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    server: PostgresDatabases = request.getfixturevalue("postgres_server")
    clean = _CLEAN[request.getfixturevalue("template")]
    name = clean.take()
    yield server.database_url(name)
    clean.give_back(name)


class _UsedDatabases(dict[str, str]):
    def __init__(self, folder: Path, exits: ExitStack) -> None:
        super().__init__(sqlite=f"sqlite:///{folder}/jobs.db")
        self.exits = exits


@pytest.fixture(scope="session")
def used_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_UsedDatabases]:
    """Databases that are handed on; engine -> address."""
    with ExitStack() as exits:
        yield _UsedDatabases(tmp_path_factory.mktemp("used"), exits)


@pytest.fixture
def used_database(engine: str, request: pytest.FixtureRequest, used_databases: _UsedDatabases) -> str:
    """Address of a migrated database without rows: cheaper than `database` for tests that are many and small."""
    if engine not in used_databases:
        server: PostgresDatabases = request.getfixturevalue("postgres_server")
        name = f"rowlock_used_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        used_databases[engine] = server.create_database(name, template=request.getfixturevalue("template"))
        used_databases.exits.callback(server.drop_database, name)
    return used_databases[engine]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(engine: str, database: str, clock: FakeClock) -> AsyncIterator[Store]:
    opened = await open_store(database, StoreOptions(clock=clock))
    if engine == FUNCTIONS:
        async with fake_world(database):
            yield cast(Store, FunctionStore(opened, clock))
            await opened.close()
    else:
        yield opened
        await opened.close()


@pytest.fixture
def rig(store: Store, clock: FakeClock) -> Rig:
    return (FunctionRig if isinstance(store, FunctionStore) else Rig)(store, clock)
