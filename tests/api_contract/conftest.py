"""An app on a migrated database of its own, on each engine; the bodies never name an engine."""

import gc
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock
from support.rig import TABLES
from support.stores import engine, template, used_database, used_databases

__all__ = ["engine", "template", "used_database", "used_databases"]

USERS_TABLES = "orders, ledger"  # that tests here create


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """No collection while a failure is put into words.

    Python 3.11's `ast` fails with a SystemError when a finalizer runs Python code in the middle of it, as that of a
    task with an exception that nobody asked for does. That would end the whole run and not one test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture
def app_url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a migrated database without rows that nobody else uses now: a SQLite file, or PostgreSQL.

    On PostgreSQL it is handed on from test to test, because there are many here and making one takes longer than most.
    """
    if engine == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    url = str(request.getfixturevalue("used_database"))
    with psycopg.connect(url) as connection:
        for table in TABLES:
            connection.execute(f"DELETE FROM rowlock.{table}")
        connection.execute(f"DROP TABLE IF EXISTS {USERS_TABLES}")
    return url


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[Rowlock]:
    """An open app without tasks."""
    async with Rowlock(app_url) as opened:
        yield opened
