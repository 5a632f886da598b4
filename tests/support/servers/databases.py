"""PostgreSQL databases that are handed on from test to test: emptying one is much cheaper than making one.

What a test has changed beyond rows (a table, a function, a setting), or still uses, is dropped instead. `owner_url` is
a database of another kind: its owner may migrate it and may make no roles.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from support.servers.postgres import PostgresDatabases

# Everything but rows, as one number.
SHAPE = """
    WITH ours AS (
        SELECT oid FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema')
    SELECT md5(string_agg(part, chr(10) ORDER BY part)) FROM (
        SELECT concat('table ', relnamespace, relname, relkind, reloptions) AS part
        FROM pg_class WHERE relnamespace IN (SELECT oid FROM ours)
        UNION ALL
        SELECT concat('column ', c.relname, a.attname, a.atttypid, a.attnotnull, a.attisdropped)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace IN (SELECT oid FROM ours) AND a.attnum > 0
        UNION ALL
        SELECT concat('function ', proname, prosrc) FROM pg_proc WHERE pronamespace IN (SELECT oid FROM ours)
        UNION ALL
        SELECT concat('constraint ', conname, pg_get_constraintdef(oid))
        FROM pg_constraint WHERE connamespace IN (SELECT oid FROM ours)
        UNION ALL
        SELECT concat('trigger ', tgname, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT concat('setting ', setconfig) FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) parts
"""
BUSY = """
    SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid())
        OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database())
"""
# Tables that have had rows since they were last empty: to truncate all of them takes three times as long.
USED_TABLES = """
    SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' AND relkind = 'r'
        AND relname NOT IN ('migrations', 'schema_files') AND pg_relation_size(pg_class.oid) > 0
"""


LEAVE_SECONDS = 0.5  # how long the sessions of a test that is over may take to end


class CleanDatabases:
    """Copies of one template. A session to each is kept: a new one would read the catalog anew for every test."""

    def __init__(self, server: PostgresDatabases, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[str] = []
        self._made: dict[str, psycopg.Connection[tuple[Any, ...]] | None] = {}  # name -> our session
        self._shape, self._seeds = "", list[tuple[str, list[str]]]()

    def take(self) -> str:
        """The name of a database as good as new."""
        if self._free:
            return self._free.pop()
        name = f"rowlock_test_{os.getpid()}_{uuid.uuid4().hex[:12]}"
        self._server.create_database(name, template=self._template)
        self._made[name] = None
        if not self._shape:
            self._learn(self._session(name))
        return name

    def give_back(self, name: str) -> None:
        """Empty it for the next test, or drop it."""
        try:
            clean = self._empty(self._session(name))
        except psycopg.OperationalError:  # the test has ended all sessions of its database, ours too
            self._leave(name)
            clean = self._empty(self._session(name))
        if clean:
            self._free.append(name)
        else:
            self._drop(name)

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The address of a database as good as new, for as long as the block lasts."""
        name = self.take()
        try:
            yield self._server.database_url(name)
        finally:
            self.give_back(name)

    def close(self) -> None:
        for name in list(self._made):
            self._drop(name)

    def _session(self, name: str) -> psycopg.Connection[tuple[Any, ...]]:
        session = self._made[name]
        if session is None:
            session = psycopg.connect(self._server.database_url(name), autocommit=True)
            self._made[name] = session
        return session

    def _learn(self, session: psycopg.Connection[tuple[Any, ...]]) -> None:
        for (table,) in session.execute(USED_TABLES).fetchall():
            rows = [row[0] for row in session.execute(f"SELECT to_jsonb(t)::text FROM {table} t")]
            self._seeds.append((table, rows))
        self._shape = str(session.execute(SHAPE).fetchone())

    def _empty(self, session: psycopg.Connection[tuple[Any, ...]]) -> bool:
        """Whether the database is now as good as new."""
        deadline = time.monotonic() + LEAVE_SECONDS
        while session.execute(BUSY).fetchone() != (False,):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        if str(session.execute(SHAPE).fetchone()) != self._shape:
            return False
        used = ", ".join(table for (table,) in session.execute(USED_TABLES))
        if used:
            session.execute(f"TRUNCATE {used} RESTART IDENTITY CASCADE")
        session.execute("DELETE FROM pg_statistic WHERE starelid >= 16384")
        for table, rows in self._seeds:
            for row in rows:
                session.execute(
                    f"INSERT INTO {table} SELECT * FROM jsonb_populate_record(NULL::{table}, %s::jsonb)", [row]
                )
        return True

    def _drop(self, name: str) -> None:
        self._leave(name)
        self._server.drop_database(name)
        del self._made[name]

    def _leave(self, name: str) -> None:
        session = self._made[name]
        if session is not None:
            session.close()
        self._made[name] = None


@contextmanager
def databases_of(app: str, server: PostgresDatabases, migrate: Callable[[str], object]) -> Iterator[CleanDatabases]:
    """Databases with the tables of an app, which `migrate` makes at an address."""
    name = f"{app}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    migrate(server.create_database(name))
    made = CleanDatabases(server, name)
    try:
        yield made
    finally:
        made.close()
        server.drop_database(name)


_ADMINISTRATORS: dict[str, str] = {}  # address of the owner -> that of the administrator


@pytest.fixture
def owner_url(postgres_server: PostgresDatabases) -> Iterator[str]:
    """An empty database whose owner may not make roles."""
    name = f"rowlock_owned_{uuid.uuid4().hex[:12]}"
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
