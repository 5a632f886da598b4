"""PostgreSQL databases that are handed on from test to test: emptying one is much cheaper than making one.

What a test has changed beyond rows (a table, a function, a setting), or still uses, is dropped instead.
"""

import os
import uuid

import psycopg

from support.server import PostgresDatabases

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
    WHERE nspname = 'rowlock' AND relkind = 'r' AND relname <> 'migrations' AND pg_relation_size(pg_class.oid) > 0
"""


class CleanDatabases:
    """Copies of one template."""

    def __init__(self, server: PostgresDatabases, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[str] = []
        self._made: set[str] = set()
        self._shape, self._seeds = "", list[tuple[str, list[str]]]()

    def take(self) -> str:
        """The name of a database as good as new."""
        if self._free:
            return self._free.pop()
        name = f"rowlock_test_{os.getpid()}_{uuid.uuid4().hex[:12]}"
        self._server.create_database(name, template=self._template)
        self._made.add(name)
        if not self._shape:
            self._learn(name)
        return name

    def _learn(self, name: str) -> None:
        with psycopg.connect(self._server.database_url(name), autocommit=True) as connection:
            for (table,) in connection.execute(USED_TABLES).fetchall():
                rows = [row[0] for row in connection.execute(f"SELECT to_jsonb(t)::text FROM {table} t")]
                self._seeds.append((table, rows))
            self._shape = str(connection.execute(SHAPE).fetchone())

    def give_back(self, name: str) -> None:
        """Empty it for the next test, or drop it."""
        with psycopg.connect(self._server.database_url(name), autocommit=True) as connection:
            busy = connection.execute(BUSY).fetchone() != (False,)
            if not busy and str(connection.execute(SHAPE).fetchone()) == self._shape:
                used = ", ".join(table for (table,) in connection.execute(USED_TABLES))
                if used:
                    connection.execute(f"TRUNCATE {used} CASCADE")
                connection.execute("DELETE FROM pg_statistic WHERE starelid >= 16384")
                for table, rows in self._seeds:
                    for row in rows:
                        connection.execute(
                            f"INSERT INTO {table} SELECT * FROM jsonb_populate_record(NULL::{table}, %s::jsonb)", [row]
                        )
                self._free.append(name)
                return
        self._drop(name)

    def _drop(self, name: str) -> None:
        self._server.drop_database(name)
        self._made.discard(name)

    def close(self) -> None:
        for name in list(self._made):
            self._drop(name)
