"""An app on a migrated database of its own, on each engine; the bodies never name an engine."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from rowlock import Rowlock
from support.server import PostgresDatabases
from support.stores import clock, database, engine, template

pytest_plugins = ["pytester"]

__all__ = ["clock", "database", "engine", "template"]


@pytest.fixture
def app_url(database: str) -> str:
    """Address of a migrated database that only this test uses: a SQLite file, then PostgreSQL."""
    return database


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[Rowlock]:
    """An open app without tasks."""
    async with Rowlock(app_url) as opened:
        yield opened


@pytest.fixture
def migrated_postgres(postgres_server: PostgresDatabases, template: str) -> Iterator[str]:
    """For the few tests that compare the engines with each other."""
    name = f"rowlock_test_{os.getpid()}_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name, template=template)
    postgres_server.drop_database(name)
