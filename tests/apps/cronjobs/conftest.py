"""The app on a database of its own, on each engine; and its handlers, which only these tests shall know."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import rowlock.client.tasks.registry as registry
from rowlock import Rowlock
from rowlock_apps.cronjobs.app import make_app
from support.servers.databases import CleanDatabases, databases_of
from support.servers.postgres import PostgresDatabases

# The registry is one per process. Tests of other files must not find the handlers of an app that they never imported.
HANDLERS = {name: registry._registry.pop(name) for name in ("cleanup", "report", "sample")}


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registry", dict(HANDLERS))


@pytest.fixture(scope="session")
def used_postgres(postgres_server: PostgresDatabases) -> Iterator[CleanDatabases]:
    """PostgreSQL databases with the app's tables, handed on from test to test: making one takes longer than most of
    them."""
    with databases_of("cronjobs", postgres_server, lambda url: asyncio.run(make_app(url).migrate())) as made:
        yield made


@pytest.fixture
def postgres(used_postgres: CleanDatabases) -> Iterator[str]:
    """One of them, without rows."""
    with used_postgres.lend() as lent:
        yield lent


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database that only this test uses, on each engine."""
    return f"sqlite:///{tmp_path}/cronjobs.db" if engine == "sqlite" else str(request.getfixturevalue("postgres"))


@pytest.fixture
async def app(url: str, tmp_path: Path) -> AsyncIterator[Rowlock]:
    """The app with its worker's numbers and without the cron jobs of its YAML."""
    config = tmp_path / "worker.yaml"
    config.write_text("worker: {pool_size: 5, poll_interval_seconds: 5, claim_batch_size: 10}")
    async with make_app(url, config=config) as made:
        yield made
