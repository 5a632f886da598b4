"""The app on a database of its own, on each engine; the bodies never name an engine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from apps.stickers.rig import Shop, point_at
from rowlock_apps.stickers import app
from rowlock_apps.stickers.app import draw
from support.servers.databases import CleanDatabases, databases_of
from support.servers.postgres import PostgresDatabases


@pytest.fixture(scope="session")
def used_postgres(postgres_server: PostgresDatabases) -> Iterator[CleanDatabases]:
    """Databases with the app's tables, which are handed on from test to test: to make one takes longer than most of
    them."""

    def migrate(url: str) -> None:
        with point_at(url):
            asyncio.run(app.migrate())

    with databases_of("stickers", postgres_server, migrate) as made:
        yield made


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Address of a database with the app's tables and no rows."""
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/stickers.db"
        return
    with request.getfixturevalue("used_postgres").lend() as lent:
        yield lent


@pytest.fixture
async def shop(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    """The open app, a user with ten credits, and short words."""
    monkeypatch.setenv("STICKERS_RESULTS", str(tmp_path / "results"))
    with point_at(url):
        async with app:
            shop = Shop(url, tmp_path / "results")
            await shop.open("ana", 10)
            yield shop


@pytest.fixture
def in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw in the worker's own process, where it is only the money that matters: a process takes longer to start than
    all the rest."""
    monkeypatch.setattr(draw, "runs_in", "async")
