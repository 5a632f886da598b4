"""An app on a migrated database of its own, on each engine; the bodies never name an engine."""

from collections.abc import AsyncIterator

import pytest

from rowlock import Rowlock
from support.stores import clock, database, engine, template

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
