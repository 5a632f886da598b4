"""A database whose owner may migrate it and may make no roles."""

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from support.servers.postgres import PostgresDatabases

_ADMINISTRATORS: dict[str, str] = {}  # address of the owner -> that of the administrator


@pytest.fixture
def owner_url(postgres_server: PostgresDatabases) -> Iterator[str]:
    """An empty database whose owner may not make roles."""
    name = f"rowlock_owned_{uuid4().hex[:12]}"
    postgres_server.create_database(name)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x' NOCREATEROLE")
        connection.execute(f"ALTER DATABASE {name} OWNER TO {name}")
    parts = urlsplit(postgres_server.database_url(name))
    url = urlunsplit(parts._replace(netloc=f"{name}:x@{parts.netloc.rpartition('@')[2]}"))
    _ADMINISTRATORS[url] = urlunsplit(parts)
    yield url
    del _ADMINISTRATORS[url]
    postgres_server.drop_database(name)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {name}")


def take_a_table_away(url: str) -> None:
    """Give a table to another owner. Where the four roles are there already, as in a cluster that other tests use, the
    owner of all tables may give them their rights without making them."""
    with psycopg.connect(_ADMINISTRATORS[url], autocommit=True) as connection:
        connection.execute("ALTER TABLE rowlock.queues OWNER TO CURRENT_USER")
