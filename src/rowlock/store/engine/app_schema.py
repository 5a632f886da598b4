"""An app's own tables: numbered SQL files beside its code, each applied once.

The transaction that runs the files adds their rows to `app_migrations`. It holds the lock of Rowlock's own migrations,
so many processes may start together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rowlock.core.errors import ConfigError, SchemaError
from rowlock.store.engine.dialects import Dialect
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.store import Store

FILE = re.compile(r"(\d+)_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class AppMigration:
    """One numbered file."""

    number: int
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Migrations:
    """The tables that an app needs beside Rowlock's: `folder/sqlite/0001_name.sql`, `folder/postgres/0001_name.sql`.

    `app` is the name under which the database records the applied files. An SQLite file is migrated when it is opened,
    a PostgreSQL database by `rowlock migrate --app …`.
    """

    app: str
    folder: str | Path

    def files(self, engine: str) -> tuple[AppMigration, ...]:
        """The files of an engine, in order."""
        folder = Path(self.folder) / engine
        if not folder.is_dir():
            raise ConfigError(f"the migrations of {self.app!r} have no folder {folder}")
        found: dict[int, AppMigration] = {}
        for path in sorted(folder.glob("*.sql")):
            match = FILE.fullmatch(path.name)
            if match is None:
                raise ConfigError(f"{path}: the name of a migration must begin with its number, as in 0001_tables.sql")
            number = int(match[1])
            if number in found:
                raise ConfigError(f"{path}: there are two migrations with the number {number}")
            found[number] = AppMigration(number, path.stem, path.read_text("utf-8"))
        return tuple(found[number] for number in sorted(found))


async def prepare(store: Store, migrations: Migrations, migrate: bool | None) -> list[str]:
    """Apply the missing migrations if `migrate` is True, or None on SQLite; else refuse a database that lacks any."""
    missing = await pending(store, migrations)
    if not missing:
        return []
    if migrate or (migrate is None and store.dialect.is_file):
        return await _apply(store, migrations)
    raise SchemaError(
        f"the database lacks {missing[0].name} of the app {migrations.app!r}; "
        "run: rowlock migrate --app module:attribute --database URL"
    )


async def pending(store: Store, migrations: Migrations) -> list[AppMigration]:
    """The files that have not been applied to the database."""
    return _not_in(await store.run(_applied(migrations.app)), migrations.files(store.engine))


def _not_in(applied: set[int], files: tuple[AppMigration, ...]) -> list[AppMigration]:
    return [file for file in files if file.number not in applied]


def script(target: Dialect, migrations: Migrations, missing: list[AppMigration]) -> str:
    """The missing migrations as SQL for a DBA to run: `rowlock migrate --sql`."""
    app = migrations.app.replace("'", "''")
    return "\n".join(
        f"BEGIN;\nINSERT INTO {target.prefix}app_migrations (app, number, name, applied_at) "
        f"VALUES ('{app}', {file.number}, '{file.name}', {target.clock});\n{file.sql.strip()}\nCOMMIT;\n"
        for file in missing
    )


async def _apply(store: Store, migrations: Migrations) -> list[str]:
    async with store.transaction() as tx:
        await tx.run(_lock())
        missing = _not_in(await tx.run(_applied(migrations.app)), migrations.files(store.engine))
        for file in missing:
            await tx.run(_mark(migrations.app, file))
            await tx.execute(file.sql)
    return [f"{migrations.app}/{file.name}" for file in missing]


@operation(read=True)
def _applied(app: str) -> Steps[set[int]]:
    return {row.number for row in (yield Call("app_migrations", app=app))}


@operation()
def _lock() -> Steps[None]:
    if (yield from dialect()).many_writers:
        yield Call("lock_migrations")


@operation()
def _mark(app: str, file: AppMigration) -> Steps[None]:
    yield Call("mark_app_migration", app=app, number=file.number, name=file.name)
