"""The app on a database of its own, on each engine; the bodies never name an engine."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from apps.stickers.rig import Shop, point_at
from rowlock_apps.stickers import app
from rowlock_apps.stickers.app import draw
from support.rig import TABLES
from support.server import PostgresDatabases


@pytest.fixture(scope="session")
def used_postgres(postgres_server: PostgresDatabases) -> Iterator[str]:
    """Address of a database with the app's tables, which is handed on from test to test: to make one takes longer than
    most of them."""
    name = f"stickers_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    url = postgres_server.create_database(name)
    with point_at(url):
        asyncio.run(app.migrate())
    yield url
    postgres_server.drop_database(name)


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database with the app's tables and no rows."""
    if engine == "sqlite":
        return f"sqlite:///{tmp_path}/stickers.db"
    url = str(request.getfixturevalue("used_postgres"))
    with psycopg.connect(url) as connection:
        for table in (
            "stickers_ledger",
            "stickers_orders",
            "stickers_users",
            *(f"rowlock.{table}" for table in TABLES),
        ):
            connection.execute(f"DELETE FROM {table}")
    return url


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
