"""What the migration runner promises, on small schemas of these tests: numbered files once, views and functions again
when their text has changed, all of it or nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rowlock.core.errors import SchemaError, StoreError, UnreleasedSchema
from rowlock.store import open_store
from rowlock.store.engine import migrate
from rowlock.store.engine.dialects import DIALECTS
from rowlock.store.engine.migrate import Applied, applied
from rowlock.store.engine.store import StoreOptions
from support.each import each

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Run SQL as another program would."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()
    with psycopg.connect(url, autocommit=True) as other:
        cursor = other.execute(sql)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []


class Example:
    """A small schema in a folder, in place of Rowlock's own, and a database to apply it to."""

    def __init__(self, folder: Path, engine: str, url: str) -> None:
        self.folder, self.dialect, self.url = folder, DIALECTS[engine], url
        self.prefix = self.dialect.prefix
        (folder / "functions").mkdir(parents=True)
        self.write("0001_schema.sql", "CREATE TABLE {t}things (id integer, name text)")
        self.view("id")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace("{t}", self.prefix))

    def view(self, columns: str) -> None:
        """Let views.sql have a view with these columns."""
        begin = "DROP VIEW IF EXISTS {t}seen;\nCREATE" if self.dialect.is_file else "CREATE OR REPLACE"
        self.write("views.sql", f"-- All; of them.\n{begin} VIEW {{t}}seen AS\nSELECT {columns} FROM {{t}}things;\n")

    def functions(self, text: str) -> None:
        """Let functions/more.sql have these functions."""
        self.write("functions/more.sql", text)

    async def apply(self) -> list[str]:
        store = await open_store(self.url, StoreOptions(migrate=True))
        await store.close()
        return store.migrated

    async def applied(self) -> Applied:
        return (await applied(self.url))[1]

    async def pending(self) -> list[str]:
        """What `rowlock migrate --check` prints."""
        there = await self.applied()
        return migrate.titles(migrate.pending(self.dialect, there), migrate.changed(self.dialect, there))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return query(self.url, sql.replace("{t}", self.prefix))

    def columns(self) -> list[str]:
        """The columns of the view."""
        about = "SELECT name FROM pragma_table_info('rowlock_seen')"
        if not self.dialect.is_file:
            about = (
                "SELECT column_name FROM information_schema.columns WHERE table_name = 'seen' ORDER BY ordinal_position"
            )
        return [row[0] for row in self.query(about)]


@pytest.fixture
def example(tmp_path: Path, engine: str, empty: str, monkeypatch: pytest.MonkeyPatch) -> Example:
    made = Example(tmp_path / "schema", engine, empty)
    monkeypatch.setattr(migrate, "schema", lambda engine: migrate.read(made.folder))
    return made


async def test_a_new_database_gets_all_migrations_and_files_in_order(example: Example) -> None:
    example.write("0010_later.sql", "INSERT INTO {t}things (id) VALUES (10)")
    example.write("0002_more.sql", "INSERT INTO {t}things (id) VALUES (2)")
    assert await example.apply() == ["0001_schema", "0002_more", "0010_later", "views.sql"]
    assert example.query("SELECT id FROM {t}seen") == [(2,), (10,)]
    assert await example.apply() == []
    assert example.query("SELECT number, name FROM {t}migrations ORDER BY number") == [
        (1, "schema"),
        (2, "more"),
        (10, "later"),
    ]


async def test_a_migration_comes_with_all_files_because_it_may_have_dropped_something(example: Example) -> None:
    await example.apply()
    example.write("0002_more.sql", "DROP VIEW {t}seen; ALTER TABLE {t}things ADD COLUMN colour text")
    assert await example.apply() == ["0002_more", "views.sql"]
    assert example.columns() == ["id"]


async def test_a_file_is_applied_again_when_its_text_has_changed(example: Example) -> None:
    await example.apply()
    example.view("id, name")
    assert await example.pending() == ["views.sql"]
    assert await example.apply() == ["views.sql"]
    assert example.columns() == ["id", "name"]
    assert await example.pending() == await example.apply() == []


async def test_a_view_may_get_columns_in_between_and_lose_some(example: Example) -> None:
    example.view("id, name AS title")
    await example.apply()
    for columns in ("id, 1 AS colour, name AS title", "name AS id"):
        example.view(columns)
        assert await example.apply() == ["views.sql"]
    assert example.columns() == ["id"]


async def test_the_script_for_a_dba_applies_the_same(example: Example) -> None:
    await example.apply()
    example.view("name, id")
    example.write("0002_more.sql", "ALTER TABLE {t}things ADD COLUMN colour text;")
    query(example.url, migrate.script(example.dialect, await example.applied()))
    assert example.columns() == ["name", "id"]
    assert await example.pending() == []
    example.view("name")
    query(example.url, migrate.script(example.dialect, await example.applied()))
    assert example.columns() == ["name"]
    assert await example.pending() == []


async def test_older_code_does_not_put_its_older_texts_back(example: Example) -> None:
    example.view("id, name")
    example.write("0002_more.sql", "SELECT 1;")
    await example.apply()
    (example.folder / "0002_more.sql").unlink()
    example.view("id")
    assert await example.pending() == []
    assert await example.apply() == []
    assert example.columns() == ["id", "name"]


async def test_code_that_does_not_know_a_breaking_migration_refuses(example: Example) -> None:
    example.write("0002_more.sql", "-- breaking\nALTER TABLE {t}things ADD COLUMN colour text;")
    await example.apply()
    (example.folder / "0002_more.sql").unlink()
    with pytest.raises(SchemaError, match=r"has migration 2.*upgrade rowlock"):
        await example.apply()


@pytest.mark.parametrize(
    "break_it",
    [
        lambda example: example.write("0002_more.sql", "CREATE TABLE half_done (id integer); SELECT no_such_column;"),
        lambda example: example.view("id +"),
    ],
    ids=["migration", "file"],
)
async def test_a_half_done_migration_is_undone(example: Example, break_it: Callable[[Example], None]) -> None:
    example.write("0002_more.sql", "CREATE TABLE half_done (id integer);")
    break_it(example)
    with pytest.raises(StoreError):
        await example.apply()
    with pytest.raises(SchemaError, match="has no Rowlock tables; run: rowlock migrate"):
        await open_store(example.url, StoreOptions(migrate=False))
    example.write("0002_more.sql", "CREATE TABLE half_done (id integer);")
    example.view("id")
    assert await example.apply() == ["0001_schema", "0002_more", "views.sql"]


@on_postgres
async def test_in_a_database_in_use_each_migration_has_its_own_transaction(example: Example) -> None:
    await example.apply()
    example.write("0002_more.sql", "ALTER TABLE {t}things ADD COLUMN colour text;")
    example.write("0003_broken.sql", "SELECT no_such_column;")
    with pytest.raises(StoreError):
        await example.apply()
    assert await example.pending() == ["0003_broken", "views.sql"]


async def test_many_that_start_together_apply_a_changed_file_once(example: Example) -> None:
    await example.apply()
    example.view("name, id")
    done = await asyncio.gather(*(example.apply() for _ in range(8)))
    assert sorted(done) == [[]] * 7 + [["views.sql"]]
    assert example.columns() == ["name", "id"]


@on_postgres
async def test_a_file_that_cannot_be_applied_again_is_refused(example: Example) -> None:
    example.functions("CREATE TABLE rowlock.twice (id integer);")
    with pytest.raises(ValueError, match=r"functions/more.sql: only CREATE OR REPLACE .* not 'CREATE TABLE"):
        await example.apply()


FIRST = (
    "CREATE OR REPLACE FUNCTION rowlock.double(number integer) RETURNS integer LANGUAGE sql AS 'SELECT number * 2';\n"
)
ANEW = {
    "body": "double(number integer) RETURNS integer LANGUAGE sql AS 'SELECT number + number';",
    "parameter name": "double(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n + n';",
    "parameter type": "double(number bigint) RETURNS integer LANGUAGE sql AS 'SELECT CAST(number * 2 AS integer)';",
    "another parameter": "double(n integer, by integer DEFAULT 2) RETURNS integer LANGUAGE sql AS 'SELECT n * by';",
    "result": "double(number integer) RETURNS numeric LANGUAGE sql AS 'SELECT CAST(number * 2 AS numeric)';",
    "columns": "double(number integer) RETURNS TABLE (a integer) LANGUAGE sql\nAS $$\n    SELECT number * 2;\n$$;",
}


@pytest.fixture
def role(example: Example) -> str:
    """A role of the cluster."""
    query(example.url, "DO $$ BEGIN CREATE ROLE rowlock_example; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    return "rowlock_example"


@on_postgres
@each("change", ANEW)
async def test_a_function_may_change_in_every_way_and_keeps_its_rights(
    example: Example, role: str, change: str
) -> None:
    example.functions(FIRST)
    await example.apply()
    query(example.url, f"GRANT EXECUTE ON FUNCTION rowlock.double TO {role} WITH GRANT OPTION")
    example.functions(f"CREATE OR REPLACE FUNCTION rowlock.{ANEW[change]}\n")
    assert await example.apply() == ["functions/more.sql"]
    assert query(example.url, "SELECT rowlock.double(4)") == [(8,)]
    named = "FROM pg_proc WHERE proname = 'double' AND pronamespace = 'rowlock'::regnamespace"
    assert query(
        example.url, f"SELECT count(*), min(has_function_privilege('{role}', oid, 'EXECUTE')::int) {named}"
    ) == [(1, 1)]
    rights = f"SELECT proacl::text LIKE '%{role}=X*/%', proacl::text LIKE '%{{=X/%' {named}"
    assert query(example.url, rights) == [(True, False)]


@on_postgres
async def test_a_new_part_may_be_called_by_whoever_may_call_the_first_function_of_its_file(
    example: Example, role: str
) -> None:
    example.functions(FIRST)
    await example.apply()
    query(example.url, f"GRANT EXECUTE ON FUNCTION rowlock.double TO {role}")
    others = "".join(
        f"CREATE OR REPLACE FUNCTION rowlock.{name}() RETURNS integer LANGUAGE sql AS 'SELECT 1';\n"
        for name in ("_part", "whole")
    )
    example.functions(FIRST + others)
    await example.apply()
    may = ", ".join(f"has_function_privilege('{role}', 'rowlock.{name}()', 'EXECUTE')" for name in ("_part", "whole"))
    assert query(example.url, f"SELECT {may}") == [(True, False)]


@on_postgres
async def test_a_view_keeps_its_rights_and_options(example: Example, role: str) -> None:
    example.view("id, name")
    await example.apply()
    query(example.url, f"GRANT SELECT ON rowlock.seen TO {role}; GRANT UPDATE (name) ON rowlock.seen TO {role}")
    query(example.url, "ALTER VIEW rowlock.seen SET (security_barrier = true)")
    for columns in ("id, name, 1 AS colour", "1 AS colour, name", "id"):
        example.view(columns)
        await example.apply()
        assert query(example.url, f"SELECT has_table_privilege('{role}', 'rowlock.seen', 'SELECT')") == [(True,)]
        assert query(example.url, "SELECT reloptions::text FROM pg_class WHERE relname = 'seen'") == [
            ("{security_barrier=true}",)
        ]
        if "name" in columns:
            assert query(example.url, f"SELECT has_column_privilege('{role}', 'rowlock.seen', 'name', 'UPDATE')") == [
                (True,)
            ]


@on_postgres
async def test_what_others_depend_on_is_replaced_or_left_alone_with_an_error_that_names_them(example: Example) -> None:
    example.functions(FIRST)
    await example.apply()
    query(example.url, "CREATE VIEW public.mine AS SELECT id FROM rowlock.seen")
    query(example.url, "CREATE TABLE public.own (id integer CHECK (rowlock.double(id) < 10))")
    example.view("id, name")
    example.functions(f"CREATE OR REPLACE FUNCTION rowlock.{ANEW['body']}\n")
    await example.apply()
    assert query(example.url, "SELECT * FROM public.mine") == []

    example.view("name, id")
    with pytest.raises(
        SchemaError, match=r"rowlock.seen .*view mine depends on view rowlock.seen; .*nothing was changed"
    ):
        await example.apply()
    assert example.columns() == ["id", "name"]
    example.view("id, name")
    example.functions(f"CREATE OR REPLACE FUNCTION rowlock.{ANEW['result']}\n")
    with pytest.raises(SchemaError, match=r"constraint own_id_check on table own depends on function rowlock.double"):
        await example.apply()
    query(example.url, "DROP TABLE public.own")
    assert await example.apply() == ["functions/more.sql"]


@on_postgres
async def test_a_trigger_of_somebody_else_runs_the_new_text_of_its_function(example: Example) -> None:
    text = (
        "CREATE OR REPLACE FUNCTION rowlock.stamp() RETURNS trigger LANGUAGE plpgsql AS $$\n"
        "BEGIN NEW.name := '%s'; RETURN NEW; END;\n$$;\n"
    )
    example.functions(text % "old")
    await example.apply()
    query(
        example.url,
        "CREATE TRIGGER stamp BEFORE INSERT ON rowlock.things FOR EACH ROW EXECUTE FUNCTION rowlock.stamp()",
    )
    example.functions(text % "new")
    await example.apply()
    query(example.url, "INSERT INTO rowlock.things (id) VALUES (1)")
    assert query(example.url, "SELECT name FROM rowlock.things") == [("new",)]


@pytest.fixture
def unreleased(engine: str, empty: str) -> str:
    """Address of a database of a version that was never released."""
    prefix = DIALECTS[engine].prefix
    setup = (
        *(["CREATE SCHEMA rowlock"] if engine == "postgres" else []),
        f"CREATE TABLE {prefix}migrations (number integer PRIMARY KEY, name text, breaking boolean, applied_at text)",
        f"INSERT INTO {prefix}migrations VALUES (1, 'engine', FALSE, ''), (2, 'governance', TRUE, '')",
        f"CREATE TABLE {prefix}jobs_live (id text)",
        f"INSERT INTO {prefix}jobs_live VALUES ('one')",
    )
    for statement in setup:
        query(empty, statement)
    return empty


@each("may_migrate", [True, False, None])
async def test_a_database_of_an_unreleased_version_is_refused_and_left_as_it_is(
    engine: str, unreleased: str, may_migrate: bool | None
) -> None:
    prefix = DIALECTS[engine].prefix
    do = r"move the file away" if engine == "sqlite" else "DROP SCHEMA rowlock CASCADE"
    with pytest.raises(UnreleasedSchema, match=rf"unreleased version .* nothing was changed. .*{do}.* rowlock migrate"):
        await open_store(unreleased, StoreOptions(migrate=may_migrate))
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
        if engine == "sqlite"
        else "SELECT relname FROM pg_class WHERE relnamespace = 'rowlock'::regnamespace AND relkind = 'r' ORDER BY 1"
    )
    start = len("rowlock_") if engine == "sqlite" else 0
    assert [name[start:] for (name,) in query(unreleased, tables)] == ["jobs_live", "migrations"]
    assert query(unreleased, f"SELECT * FROM {prefix}jobs_live") == [("one",)]
    assert query(unreleased, f"SELECT count(*) FROM {prefix}migrations") == [(2,)]
