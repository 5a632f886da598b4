"""Numbered migrations, each applied once, in one transaction with its own row in `migrations`.

Many processes may start together: the first takes a lock, the others find the rows there. A file whose first line is
`-- breaking` makes code that does not know it refuse to start; any other newer migration is compatible, so that old
workers keep running through an upgrade.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rowlock.core.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str
    breaking: bool


@cache
def migrations(engine: str) -> tuple[Migration, ...]:
    """All of an engine's migrations, in order."""
    folder = resources.files("rowlock.store").joinpath("sql", "migrations", engine)
    found = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            text = file.read_text("utf-8")
            number, _, name = file.name[:-4].partition("_")
            found.append(Migration(int(number), name, text, text.startswith("-- breaking")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def bookkeeping(engine: str) -> str:
    """The table that remembers what was applied."""
    if engine == "postgres":
        return (
            "CREATE SCHEMA IF NOT EXISTS rowlock;\n"
            "CREATE TABLE IF NOT EXISTS rowlock.migrations (\n"
            "    number integer PRIMARY KEY, name text NOT NULL, breaking boolean NOT NULL,\n"
            "    applied_at timestamptz NOT NULL DEFAULT now());\n"
        )
    return (
        "CREATE TABLE IF NOT EXISTS rowlock_migrations (\n"
        "    number INTEGER PRIMARY KEY, name TEXT NOT NULL, breaking INTEGER NOT NULL,\n"
        "    applied_at REAL NOT NULL DEFAULT (unixepoch('subsec')));\n"
    )


def script(engine: str, applied: dict[int, bool] | None = None) -> str:
    """What is not yet applied, as SQL for a DBA to run: `rowlock migrate --sql`."""
    table = "rowlock.migrations" if engine == "postgres" else "rowlock_migrations"
    parts = [bookkeeping(engine)]
    for migration in pending(engine, applied or {}):
        flag = "TRUE" if migration.breaking else "FALSE"
        parts.append(
            f"BEGIN;\nINSERT INTO {table} (number, name, breaking) VALUES "
            f"({migration.number}, '{migration.name}', {flag});\n{migration.sql.strip()}\nCOMMIT;\n"
        )
    return "\n".join(parts)


def applied_in_sqlite(connection: Any) -> dict[int, bool]:
    """The migrations that a SQLite file has, each with whether it is breaking."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rowlock_migrations'").fetchall():
        return {}
    rows = connection.execute("SELECT number, breaking FROM rowlock_migrations").fetchall()
    return {number: bool(breaking) for number, breaking in rows}


async def applied_in_postgres(connection: Any) -> dict[int, bool]:
    """The migrations that a PostgreSQL database has, each with whether it is breaking."""
    if await connection.fetchval("SELECT to_regclass('rowlock.migrations')") is None:
        return {}
    return {row[0]: row[1] for row in await connection.fetch("SELECT number, breaking FROM rowlock.migrations")}


def pending(engine: str, applied: dict[int, bool]) -> list[Migration]:
    """Migrations that this code has and the database has not."""
    return [migration for migration in migrations(engine) if migration.number not in applied]


def check(engine: str, applied: dict[int, bool], where: str) -> None:
    """Refuse a schema that this code cannot use. `applied` maps each number to whether it is breaking."""
    known = {migration.number for migration in migrations(engine)}
    if breaking := sorted(number for number, flag in applied.items() if flag and number not in known):
        raise SchemaError(
            f"{where} has migration {breaking[0]}, which this version of Rowlock does not know and cannot work with; "
            "upgrade rowlock on this machine"
        )
    if missing := pending(engine, applied):
        state = "has no Rowlock tables" if not applied else f"lacks migration {missing[0].number}"
        raise SchemaError(f"{where} {state}; run: rowlock migrate --database URL")
