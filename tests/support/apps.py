"""Fixtures: an open app on a migrated database of its own, on each engine. A conftest imports them from here."""

from collections.abc import AsyncIterator

import pytest

from rowlock import Rowlock


@pytest.fixture
def app_url(database: str) -> str:
    """Address of a migrated database without rows that only this test uses."""
    return database


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[Rowlock]:
    """An open app without tasks."""
    async with Rowlock(app_url) as opened:
        yield opened
