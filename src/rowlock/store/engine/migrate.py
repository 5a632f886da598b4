"""Numbered migrations, each applied once, in one transaction with its own row in `migrations`.

Many processes may start together: the first takes a lock, and the others then find the rows. A file whose first line is
`-- breaking` makes code that does not know it refuse to start; any other newer migration is compatible, so that old
workers keep running through an upgrade.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rowlock.core.errors import SchemaError
from rowlock.store.engine.dialects import POSTGRES, Dialect


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str
    breaking: bool

    @property
    def title(self) -> str:
        """Its name for people, as its file has it."""
        return f"{self.number:04d}_{self.name}"


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


def script(dialect: Dialect, applied: dict[int, bool] | None = None) -> str:
    """What is not yet applied, as SQL for a DBA to run: `rowlock migrate --sql`."""
    parts = [dialect.migrations_table]
    for migration in pending(dialect, applied or {}):
        flag = "TRUE" if migration.breaking else "FALSE"
        parts.append(
            f"BEGIN;\nINSERT INTO {dialect.prefix}migrations (number, name, breaking) VALUES "
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


def pending(dialect: Dialect, applied: dict[int, bool]) -> list[Migration]:
    """The migrations of this code that the database does not have."""
    return [migration for migration in migrations(dialect.name) if migration.number not in applied]


def check(dialect: Dialect, applied: dict[int, bool], where: str) -> None:
    """Refuse a schema that this code cannot use. `applied` maps each number to whether it is breaking."""
    known = {migration.number for migration in migrations(dialect.name)}
    if breaking := sorted(number for number, flag in applied.items() if flag and number not in known):
        raise SchemaError(
            f"{where} has migration {breaking[0]}, which this version of Rowlock does not know and cannot work with; "
            "upgrade rowlock on this machine"
        )
    if missing := pending(dialect, applied):
        state = "has no Rowlock tables" if not applied else f"lacks migration {missing[0].number}"
        raise SchemaError(f"{where} {state}; run: rowlock migrate --database URL")


async def apply_to_postgres(connection: Any) -> list[str]:
    """Apply the missing migrations to a PostgreSQL database; returns their names. Many processes may do it at once."""
    names = []
    while some := await _apply_some(connection):
        names += some
    return names


async def _apply_some(connection: Any) -> list[str]:
    """Apply the next migration, or all of them to a new database. In one that is in use each has its own
    transaction: the locks of one must not be held through all that follow."""
    # Under a stricter level the snapshot is older than the lock, and would not show what another process has applied.
    async with connection.transaction(isolation="read_committed"):
        # CREATE SCHEMA IF NOT EXISTS still collides when two run it at once, so the lock comes first.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'))")
        await connection.execute(POSTGRES.migrations_table)
        applied = await applied_in_postgres(connection)
        missing = pending(POSTGRES, applied)
        now = missing[:1] if applied else missing
        for migration in now:
            await connection.execute(
                "INSERT INTO rowlock.migrations (number, name, breaking) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.breaking,
            )
            await connection.execute(migration.sql)
        return [migration.title for migration in now]
