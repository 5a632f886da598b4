"""One migrated PostgreSQL database for each file; each test has its own task name."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from support.servers.postgres import PostgresDatabases
from support.sql.foreign import migrate, new_task


@pytest.fixture(scope="module")
def url(postgres_server: PostgresDatabases) -> Iterator[str]:
    """One migrated database for this file; each test has its own task name."""
    name = f"rowlock_foreign_{uuid.uuid4().hex[:12]}"
    address = postgres_server.create_database(name)
    asyncio.run(migrate(address))
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE orders (task text)")
    yield address
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def outside(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another connection, which sees only what is committed."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def task() -> str:
    return new_task()
