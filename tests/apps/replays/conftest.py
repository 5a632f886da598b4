"""The system on a database of its own, on each engine, behind a real server; and the other side of a real Valkey."""

import asyncio
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from api.conftest import Api
from rowlock_apps.replays.app import Replays
from support.servers.databases import CleanDatabases, databases_of
from support.servers.postgres import PostgresDatabases
from support.servers.redis import RedisServer
from support.web.remote import Remote


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the developer's shell says is not for tests; exports go to the test's own folder, the port is any."""
    for name in list(os.environ):
        if name.startswith("ROWLOCK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("JOBS_EXPORT_PATH", str(tmp_path / "exports"))
    monkeypatch.setenv("ROWLOCK_API__PORT", "0")


@pytest.fixture(scope="session")
def replays_databases(postgres_server: PostgresDatabases) -> Iterator[CleanDatabases]:
    """Migrated PostgreSQL databases that are handed on from test to test: making one takes longer than most tests
    here."""
    with databases_of("replays", postgres_server, lambda url: asyncio.run(Replays(url).migrate())) as made:
        yield made


@pytest.fixture(scope="session")
def replays_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    file = tmp_path_factory.mktemp("replays") / "replays.db"
    asyncio.run(Replays(f"sqlite:///{file}").migrate())
    return file


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a migrated database without rows that nobody else uses now."""
    if engine == "sqlite":
        shutil.copy(request.getfixturevalue("replays_file"), tmp_path / "replays.db")
        yield f"sqlite:///{tmp_path}/replays.db"
        return
    with request.getfixturevalue("replays_databases").lend() as lent:
        yield lent


@pytest.fixture
async def app(url: str) -> AsyncIterator[Replays]:
    """The open system without Redis, as it is by default."""
    async with Replays(url) as opened:
        yield opened


@pytest.fixture
async def api(app: Replays) -> AsyncIterator[Api]:
    """A server over the system; no worker."""
    async with app.server() as server, aiohttp.ClientSession() as http:
        yield Api(app, "http://{}:{}".format(*server.address), http)


@pytest.fixture
async def ana(api: Api) -> str:
    """The token of a user."""
    return await api.token("ana")


@pytest.fixture
async def bob(api: Api) -> str:
    """The token of another user."""
    return await api.token("bob")


# --- behind Redis


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that all tests of a process share and none stops."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture
def remote(redis_server: RedisServer, tmp_path: Path) -> Remote:
    """The other side of Redis, with streams of its own."""
    return Remote(redis_server, f"{uuid.uuid4().hex[:8]}:", tmp_path / "exports")


@pytest.fixture
async def far_api(url: str, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """A server over the system with a Redis in its settings, and a bridge; no worker behind it."""
    monkeypatch.setenv("ROWLOCK_REDIS__URL", remote.server.url)
    monkeypatch.setenv("ROWLOCK_REDIS__PREFIX", remote.prefix)
    async with Replays(url) as app, app.bridge(), app.server() as server, aiohttp.ClientSession() as http:
        yield Api(app, "http://{}:{}".format(*server.address), http)
