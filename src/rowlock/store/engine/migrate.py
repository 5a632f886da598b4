"""Bring a database's schema up to this version: numbered migrations, and the views and functions that belong to them.

A numbered file (`0001_schema.sql`) is applied once, in the transaction that adds its row to `migrations`. The other
files (`views.sql`, `functions/*.sql`) are applied again when their text changes; `schema_files` stores their checksums.

Many processes may start together: the first takes a lock and migrates, the rest wait and find nothing left to do. If a
file's first line is `-- breaking`, code that doesn't know this migration refuses to start. All other newer migrations
are compatible, so old workers keep running through an upgrade. Code that finds a migration it doesn't know leaves views
and functions alone, because they are newer than its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from rowlock.core.errors import SchemaError, StoreError, UnreleasedSchema
from rowlock.store.engine.dialects import POSTGRES, Dialect
from rowlock.store.engine.store import dialect_of, file_of, redact

# CREATE OR REPLACE keeps the rights of a view or function, and sessions that are using it go on. If PostgreSQL refuses,
# because columns, parameters or the result have changed, it is dropped and created again with its old rights. If a
# foreign object depends on it, the whole migration is rolled back, with an error that names that object.
REPLACE = """\
DO $rowlock$
DECLARE
    part    text[];     -- kind, name, the first function of its file, definition
    older   oid[];      -- the objects that have this name now
    options text[];     -- the options of a view, such as security_invoker, which an operator may have set
    rights  text[];
    line    text;
BEGIN
    FOREACH part SLICE 1 IN ARRAY ARRAY[
%parts%
    ] LOOP
        older := ARRAY(
            SELECT p.oid FROM pg_proc p
            WHERE part[1] = 'FUNCTION' AND p.pronamespace = 'rowlock'::regnamespace AND p.proname = part[2]
            UNION ALL
            SELECT c.oid FROM pg_class c
            WHERE part[1] = 'VIEW' AND c.relnamespace = 'rowlock'::regnamespace AND c.relname = part[2]);
        options := (SELECT c.reloptions FROM pg_class c WHERE part[1] = 'VIEW' AND c.oid = older[1]);
        rights := ARRAY(
            SELECT format('GRANT %s ON %s rowlock.%I TO %s%s', g.privilege || g.columns,
                          CASE part[1] WHEN 'VIEW' THEN 'TABLE' ELSE part[1] END, part[2],
                          CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
                          CASE WHEN g.grantable THEN ' WITH GRANT OPTION' ELSE '' END)
            FROM (
                SELECT a.privilege_type, '', a.grantee, a.is_grantable
                FROM pg_proc p CROSS JOIN aclexplode(p.proacl) a
                WHERE part[1] = 'FUNCTION' AND a.grantee <> p.proowner
                  -- A new helper (_name) may be called by the roles that may call the first function of its file.
                  AND (p.oid = ANY (older) OR older = '{}' AND part[2] LIKE '\\_%'
                       AND p.pronamespace = 'rowlock'::regnamespace AND p.proname = part[3])
                UNION ALL
                SELECT a.privilege_type, '', a.grantee, a.is_grantable
                FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
                WHERE part[1] = 'VIEW' AND c.oid = ANY (older) AND a.grantee <> c.relowner
                UNION ALL
                SELECT a.privilege_type, format(' (%I)', t.attname), a.grantee, a.is_grantable
                FROM pg_attribute t CROSS JOIN aclexplode(t.attacl) a
                WHERE part[1] = 'VIEW' AND t.attrelid = ANY (older)
            ) g (privilege, columns, grantee, grantable));
        BEGIN
            EXECUTE part[4];
            IF older <> '{}' AND part[1] = 'FUNCTION' AND EXISTS (
                SELECT 1 FROM pg_proc p
                WHERE p.pronamespace = 'rowlock'::regnamespace AND p.proname = part[2] AND p.oid <> ALL (older))
            THEN
                RAISE invalid_function_definition;  -- its parameter types changed: the older overload would stay
            END IF;
        EXCEPTION WHEN invalid_function_definition OR invalid_table_definition OR wrong_object_type THEN
            IF older = '{}' THEN
                RAISE;
            END IF;
            BEGIN
                EXECUTE (SELECT string_agg(format('DROP %s %s;', part[1], CASE part[1] WHEN 'VIEW' THEN
                    u::regclass::text ELSE u::regprocedure::text END), ' ') FROM unnest(older) u);
            EXCEPTION WHEN dependent_objects_still_exist THEN
                GET STACKED DIAGNOSTICS line = PG_EXCEPTION_DETAIL;
                RAISE EXCEPTION 'this version must drop rowlock.% and create it again, but %; drop what depends on it,'
                    ' run rowlock migrate, and create it again (nothing was changed)',
                    part[2], replace(line, E'\\n', '; ') USING ERRCODE = 'dependent_objects_still_exist';
            END;
            EXECUTE part[4];
            older := '{}';
        END;
        IF older = '{}' THEN
            FOREACH line IN ARRAY rights LOOP
                BEGIN
                    EXECUTE line;
                EXCEPTION WHEN undefined_column THEN
                    NULL;  -- a right on a column that the view no longer has
                END;
            END LOOP;
        END IF;
        FOREACH line IN ARRAY coalesce(options, '{}') LOOP
            EXECUTE format('ALTER VIEW rowlock.%I SET (%s = %L)',
                           part[2], split_part(line, '=', 1), split_part(line, '=', 2));
        END LOOP;
    END LOOP;
    -- No function may be called by everyone: `rowlock migrate --roles` grants it to the roles that need it.
    REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock FROM PUBLIC;
END;
$rowlock$;
"""
DEFINITION = re.compile(
    r"^CREATE OR REPLACE (?:(FUNCTION) rowlock\.(\w+)\(.*?\bAS\s+(\$\$|').*?\3;"
    r"|(VIEW) rowlock\.(\w+) .*?;(?=\n\n|\n*\Z))",
    re.DOTALL | re.MULTILINE,
)


async def applied(url: str) -> tuple[Dialect, Applied]:
    """The engine's dialect, and the migrations and files that the database has."""
    dialect = dialect_of(url)
    if dialect.is_file:
        return dialect, _in_file(file_of(url))
    async with connected(url, "cannot open") as connection:
        return dialect, await applied_in_postgres(connection)


def _in_file(file: Path) -> Applied:
    import apsw

    if not file.exists():
        return Applied()
    try:
        # Not READONLY: such a connection leaves its -wal and -shm files behind.
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return applied_in_sqlite(connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreError(f"cannot read {file}: {error}") from error


@asynccontextmanager
async def connected(url: str, cannot: str) -> AsyncIterator[Any]:
    """A connection to a PostgreSQL server for the duration of the block. `cannot` starts the message if that fails."""
    from rowlock.store.engine.postgres.connector import dial, place
    from rowlock.store.engine.postgres.errors import TROUBLE, translate

    try:
        connection = await dial(url, timeout=10, statement_cache_size=0)  # a pooler may be in between
        try:
            yield connection
        finally:
            await connection.close()
    except TROUBLE as error:
        raise translate(error, f"{cannot} {redact(url)}", place(url)) from error


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str
    breaking: bool

    @property
    def title(self) -> str:
        """Its name as shown to users: the name of its file."""
        return f"{self.number:04d}_{self.name}"


@dataclass(frozen=True)
class SchemaFile:
    """A file of views or functions."""

    title: str  # its path in the engine's folder
    sql: str

    @cached_property
    def checksum(self) -> str:
        """The hash of its text, which the database stores."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of this code for one engine, in the order in which it is applied."""

    migrations: tuple[Migration, ...]
    files: tuple[SchemaFile, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """The migrations and files that a database has."""

    migrations: dict[int, bool] = field(default_factory=dict)  # number -> is it breaking?
    files: dict[str, str] = field(default_factory=dict)  # title -> checksum
    first: str | None = None  # the name of migration 1


@cache
def schema(engine: str) -> Schema:
    """The schema of this version for an engine."""
    return read(resources.files("rowlock.store").joinpath("schema", engine))


def read(folder: Traversable) -> Schema:
    """The schema in a folder: numbered files, views.sql and functions/*.sql."""
    migrations, files = [], []
    for path, file in _sql_files(folder, ""):
        text = file.read_text("utf-8")
        if file.name[0].isdigit():
            number, _, name = file.name[:-4].partition("_")
            migrations.append(Migration(int(number), name, text, text.startswith("-- breaking")))
        else:
            files.append(SchemaFile(path, text))
    return Schema(
        tuple(sorted(migrations, key=lambda migration: migration.number)),
        tuple(sorted(files, key=lambda file: file.title)),
    )


def _sql_files(folder: Traversable, path: str) -> Iterable[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sql_files(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".sql"):
            yield f"{path}{entry.name}", entry


def pending(dialect: Dialect, applied: Applied) -> list[Migration]:
    """The migrations of this code that the database does not have."""
    return [migration for migration in schema(dialect.name).migrations if migration.number not in applied.migrations]


def changed(dialect: Dialect, applied: Applied) -> list[SchemaFile]:
    """The files of views and functions that the database lacks in their current text. After a migration all files are
    applied again, because the migration may have dropped one of their objects."""
    if applied.migrations.keys() - {migration.number for migration in schema(dialect.name).migrations}:
        return []
    files = schema(dialect.name).files
    if pending(dialect, applied):
        return list(files)
    return [file for file in files if applied.files.get(file.title) != file.checksum]


def titles(migrations: Iterable[Migration], files: Iterable[SchemaFile]) -> list[str]:
    """Their names as shown to users."""
    return [*(migration.title for migration in migrations), *(file.title for file in files)]


def check(dialect: Dialect, applied: Applied, where: str) -> None:
    """Refuse a schema that this code cannot use."""
    refuse_unreleased(dialect, applied, where)
    known = {migration.number for migration in schema(dialect.name).migrations}
    if breaking := sorted(number for number, flag in applied.migrations.items() if flag and number not in known):
        raise SchemaError(
            f"{where} has migration {breaking[0]}, which this version of Rowlock does not know and cannot work with; "
            "upgrade rowlock on this machine"
        )
    if missing := pending(dialect, applied):
        state = "has no Rowlock tables" if not applied.migrations else f"lacks migration {missing[0].number}"
        raise SchemaError(f"{where} {state}; run: rowlock migrate --database URL")


def refuse_unreleased(dialect: Dialect, applied: Applied, where: str) -> None:
    """Refuse a database of a version before 0.1, which used these numbers for other migrations."""
    if applied.first not in (None, schema(dialect.name).migrations[0].name):
        away = "move the file away" if dialect.is_file else "run DROP SCHEMA rowlock CASCADE"
        raise UnreleasedSchema(
            f"{where} was made by an unreleased version of Rowlock, which this version cannot upgrade; nothing was "
            f"changed. Finish or export its jobs with that version, then use a new database (or {away}) and run: "
            "rowlock migrate --database URL"
        )


def record(dialect: Dialect, migration: Migration) -> str:
    """SQL that records a migration as applied."""
    return (
        f"INSERT INTO {dialect.prefix}migrations (number, name, breaking) VALUES "
        f"({migration.number}, '{migration.name}', {'TRUE' if migration.breaking else 'FALSE'});\n"
    )


def replace(dialect: Dialect, files: list[SchemaFile]) -> str:
    """SQL that applies files of views and functions, and records their checksums."""
    table = f"{dialect.prefix}schema_files"
    notes = "".join(
        f"INSERT INTO {table} (name, checksum) VALUES ('{file.title}', '{file.checksum}')\n"
        f"    ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = excluded.applied_at;\n"
        for file in files
    )
    if dialect.is_file:
        return "".join(file.sql for file in files) + notes
    parts = ",\n".join(
        f"    ARRAY['{kind}', '{name}', '{first}', $sql$\n{sql}$sql$]"
        for file in files
        for first, kind, name, sql in _definitions(file)
    )
    return REPLACE.replace("%parts%", parts) + notes


def _definitions(file: SchemaFile) -> list[tuple[str, str, str, str]]:
    """The views and functions in a file, each as (name of the file's first one, kind, name, definition)."""
    found = [(m[1] or m[4], m[2] or m[5], m[0]) for m in DEFINITION.finditer(file.sql)]
    rest = re.sub(r"--[^\n]*", "", DEFINITION.sub("", file.sql)).strip()
    if rest or not found:
        raise ValueError(
            f"{file.title}: only CREATE OR REPLACE FUNCTION or VIEW can be applied again, not {rest[:60]!r}"
        )
    return [(found[0][1], kind, name, sql) for kind, name, sql in found]


def script(dialect: Dialect, applied: Applied | None = None) -> str:
    """Everything not yet applied, as SQL for a DBA to run: `rowlock migrate --sql`."""
    there = applied or Applied()
    steps = [record(dialect, migration) + migration.sql.strip() + "\n" for migration in pending(dialect, there)]
    if files := changed(dialect, there):
        # In one transaction with the last migration, because the old functions may not fit its tables.
        steps[-1:] = ["\n".join((*steps[-1:], replace(dialect, files)))]
    return "\n".join([dialect.migrations_table, *(f"BEGIN;\n{step}COMMIT;\n" for step in steps)])


def applied_in_sqlite(connection: Any) -> Applied:
    """The migrations and files that an SQLite file has."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if "rowlock_migrations" not in names:
        return Applied()
    rows = connection.execute("SELECT number, name, breaking FROM rowlock_migrations").fetchall()
    files = "rowlock_schema_files" in names and connection.execute("SELECT name, checksum FROM rowlock_schema_files")
    return _applied(rows, files or [])


async def applied_in_postgres(connection: Any) -> Applied:
    """The migrations and files that a PostgreSQL database has."""
    if await connection.fetchval("SELECT to_regclass('rowlock.migrations')") is None:
        return Applied()
    rows = await connection.fetch("SELECT number, name, breaking FROM rowlock.migrations")
    if await connection.fetchval("SELECT to_regclass('rowlock.schema_files')") is None:
        return _applied(rows, [])
    return _applied(rows, await connection.fetch("SELECT name, checksum FROM rowlock.schema_files"))


def _applied(migrations: Iterable[Any], files: Iterable[Any]) -> Applied:
    rows = list(migrations)
    first = next((name for number, name, _ in rows if number == 1), None)
    return Applied({number: bool(breaking) for number, _, breaking in rows}, dict(map(tuple, files)), first)


async def apply_to_postgres(connection: Any, where: str) -> list[str]:
    """Apply everything that a PostgreSQL database lacks; returns the names. Many processes may do so at once."""
    names = []
    while some := await _apply_some(connection, where):
        names += some
    return names


async def _apply_some(connection: Any, where: str) -> list[str]:
    """Apply the next migration, or all of them if the database is new. In a database that is in use, each migration has
    its own transaction, so that its locks aren't held through the next ones. The files go with the last migration."""
    # At a stricter level the snapshot would be older than the lock and miss what another process has applied.
    async with connection.transaction(isolation="read_committed"):
        # Two concurrent CREATE SCHEMA IF NOT EXISTS can still collide, so the lock comes first.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('rowlock.migrate'))")
        applied = await applied_in_postgres(connection)
        refuse_unreleased(POSTGRES, applied, where)
        await connection.execute(POSTGRES.migrations_table)
        missing = pending(POSTGRES, applied)
        now = missing[:1] if applied.migrations else missing
        for migration in now:
            await connection.execute(record(POSTGRES, migration) + migration.sql)
        files = changed(POSTGRES, applied) if now == missing else []
        if files:
            await connection.execute(replace(POSTGRES, files))
        return titles(now, files)
