"""Fixtures of the races between real processes: a database on each engine, and a race on it."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.races.rig import Race
from support.servers.postgres import PostgresDatabases


@pytest.fixture
def url(database: str) -> str:
    """A database on each engine."""
    return database


@pytest.fixture
async def race(url: str, tmp_path: Path) -> AsyncIterator[Race]:
    """A race on each engine."""
    race = Race(url, tmp_path)
    await race.open()
    yield race
    await race.close()


@pytest.fixture
def postgres(postgres_server: PostgresDatabases, template: str) -> Iterator[str]:
    """A migrated PostgreSQL database that only this test uses."""
    name = f"rowlock_race_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name, template=template)
    postgres_server.drop_database(name)


@pytest.fixture
async def postgres_race(postgres: str, tmp_path: Path) -> AsyncIterator[Race]:
    """A race on PostgreSQL only."""
    race = Race(postgres, tmp_path)
    await race.open()
    yield race
    await race.close()
