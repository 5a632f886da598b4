"""What migrating promises: once, whole, whoever starts first; and a clear word where the schema does not fit."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from rowlock.core.errors import SchemaError
from rowlock.core.sources.policy import SHIPPED, Policy
from rowlock.store import open_store
from rowlock.store.engine import migrate
from rowlock.store.engine.dialects import DIALECTS
from rowlock.store.engine.store import StoreOptions
from rowlock.store.sources.sources import sources
from support.each import each
from support.rigs.rig import COLUMNS, TABLES, Rig, prefix

OPEN = (
    "import asyncio, sys; from rowlock.store import open_store; from rowlock.store.engine.store import StoreOptions\n"
    "async def main():\n"
    "    store = await open_store(sys.argv[1], StoreOptions(migrate=True))\n"
    "    await store.close()\n"
    "sys.stdin.readline(); asyncio.run(main())"
)


async def schema(url: str) -> list[tuple[Any, ...]]:
    """Everything about the tables, indexes, constraints and views, in the engine's own words."""
    store = await open_store(url, StoreOptions(migrate=False))
    try:
        queries = {
            "sqlite": ["SELECT type, name, sql FROM sqlite_master"],
            "postgres": [
                "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default"
                " FROM information_schema.columns WHERE table_schema = 'rowlock'",
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'rowlock'",
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = 'rowlock'::regnamespace",
                "SELECT viewname, definition FROM pg_views WHERE schemaname = 'rowlock'",
                "SELECT relname, relkind::text, reloptions::text, pg_get_expr(relpartbound, oid) FROM pg_class"
                " WHERE relnamespace = 'rowlock'::regnamespace",
                "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace",
                "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
            ],
        }[store.engine]
        async with store.transaction() as tx:
            found = [tuple(row) for query in queries for row in await tx.fetch(query)]
        return sorted(found, key=repr)
    finally:
        await store.close()


async def migrations_of(url: str) -> list[tuple[int, str, bool]]:
    store = await open_store(url, StoreOptions(migrate=False))
    try:
        async with store.transaction() as tx:
            found = await tx.fetch(f"SELECT number, name, breaking FROM {prefix(store)}migrations ORDER BY number")
            return [(row[0], row[1], bool(row[2])) for row in found]
    finally:
        await store.close()


def run_by_hand(url: str, script: str) -> None:
    """As a database administrator would, with another client."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute(script)
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(script)


async def pretend_newer(url: str, number: int, breaking: bool) -> None:
    store = await open_store(url, StoreOptions(migrate=True))
    async with store.transaction() as tx:
        table = f"{prefix(store)}migrations"
        await tx.execute(
            f"INSERT INTO {table} (number, name, breaking) VALUES ($1, 'later', {str(breaking).upper()})", number
        )
    await store.close()


async def test_many_tasks_that_open_at_once_migrate_once(empty: str, engine: str) -> None:
    opened = await asyncio.gather(*(open_store(empty, StoreOptions(migrate=True)) for _ in range(8)))
    await asyncio.gather(*(store.close() for store in opened))
    assert await migrations_of(empty) == [(m.number, m.name, m.breaking) for m in migrate.schema(engine).migrations]
    assert sum(bool(store.migrated) for store in opened) == 1


async def test_many_processes_that_open_at_once_migrate_once(empty: str, engine: str) -> None:
    pipe = asyncio.subprocess.PIPE
    opening = [sys.executable, "-c", OPEN, empty]
    started = [await asyncio.create_subprocess_exec(*opening, stdin=pipe, stderr=pipe) for _ in range(4)]
    ended = await asyncio.gather(*(process.communicate(b"go\n") for process in started))
    assert [process.returncode for process in started] == [0] * 4, ended
    assert len(await migrations_of(empty)) == len(migrate.schema(engine).migrations)


async def test_migrating_again_changes_nothing(database: str) -> None:
    store = await open_store(database, StoreOptions(migrate=True))
    await store.close()
    before = await schema(database)
    again = await open_store(database, StoreOptions(migrate=True))
    await again.close()
    assert again.migrated == []
    assert await schema(database) == before


async def test_a_newer_breaking_schema_is_refused(empty: str) -> None:
    await pretend_newer(empty, 9001, breaking=True)
    for may_migrate in (True, False):
        with pytest.raises(SchemaError, match=r"9001.*upgrade rowlock"):
            await open_store(empty, StoreOptions(migrate=may_migrate))


async def test_a_newer_compatible_schema_is_used(empty: str, clock: Any) -> None:
    await pretend_newer(empty, 9002, breaking=False)
    store = await open_store(empty, StoreOptions(clock=clock))
    try:
        rig = Rig(store, clock)
        job = await rig.running()
        await rig.succeed(job)
        assert (await rig.row(job.id))["state"] == "succeeded"
    finally:
        await store.close()


async def test_a_missing_schema_is_an_error_that_names_the_command(empty: str) -> None:
    with pytest.raises(SchemaError, match="rowlock migrate"):
        await open_store(empty, StoreOptions(migrate=False))


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_server_is_not_migrated_unless_asked_to(empty: str) -> None:
    with pytest.raises(SchemaError, match="rowlock migrate"):
        await open_store(empty)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_file_migrates_by_itself(empty: str) -> None:
    store = await open_store(empty)
    await store.close()
    assert store.migrated


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_refused_open_leaves_no_connection_behind(empty: str) -> None:
    with pytest.raises(SchemaError):
        await open_store(empty)
    with psycopg.connect(empty, autocommit=True) as other:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        for _ in range(100):  # a closed connection's backend needs a moment to leave
            if other.execute(others).fetchone() == (0,):
                return
            await asyncio.sleep(0.02)
    pytest.fail("the connection of a refused open is still there after 2 s")


async def test_the_script_applied_by_hand_equals_a_fresh_schema(empty: str, database: str, engine: str) -> None:
    store = await open_store(database, StoreOptions(migrate=True))
    await store.close()
    run_by_hand(empty, migrate.script(DIALECTS[engine]))
    assert await schema(empty) == await schema(database)
    assert await migrations_of(empty) == await migrations_of(database)


async def test_the_script_holds_only_what_is_not_yet_applied(engine: str) -> None:
    known = migrate.schema(engine)
    everything = migrate.Applied(
        {m.number: m.breaking for m in known.migrations}, {file.title: file.checksum for file in known.files}
    )
    assert "jobs_live" in migrate.script(DIALECTS[engine])
    assert "jobs_live" not in migrate.script(DIALECTS[engine], everything)


async def columns_of(rig: Rig, table: str) -> list[str]:
    about = {
        "sqlite": f"SELECT name FROM pragma_table_info('rowlock_{table}') ORDER BY cid",
        "postgres": "SELECT column_name FROM information_schema.columns"
        f" WHERE table_schema = 'rowlock' AND table_name = '{table}' ORDER BY ordinal_position",
    }
    return [row[0] for row in await rig.fetch(about[rig.store.engine])]


async def test_the_view_has_the_columns_of_the_contract(rig: Rig) -> None:
    assert await columns_of(rig, "jobs") == COLUMNS
    assert len(COLUMNS) == 39


async def test_both_engines_have_the_same_tables_and_columns(
    tmp_path: Path, request: pytest.FixtureRequest, clock: Any
) -> None:
    found = []
    for url in (f"sqlite:///{tmp_path}/columns.db", request.getfixturevalue("postgres_url")):
        store = await open_store(url, StoreOptions(migrate=True))
        try:
            rig = Rig(store, clock)
            tables = {
                "sqlite": "SELECT substr(name, 9) FROM sqlite_master"
                " WHERE type IN ('table', 'view') AND name LIKE 'rowlock\\_%' ESCAPE '\\'",
                "postgres": "SELECT relname FROM pg_class WHERE relnamespace = 'rowlock'::regnamespace"
                " AND relkind IN ('r', 'p', 'v') AND NOT relispartition",
            }
            names = sorted(row[0] for row in await rig.fetch(tables[store.engine]))
            found.append({name: await columns_of(rig, name) for name in names})
        finally:
            await store.close()
    assert found[0] == found[1]
    assert set(TABLES) | {"jobs", "migrations"} <= set(found[0])


async def test_a_new_database_has_the_settings_of_sources_that_are_shipped(rig: Rig) -> None:
    found = await rig.store.run(sources(100))
    assert {source.name: source.policy for source in found} == {"api": Policy(), "domain": SHIPPED["domain"]}


async def test_the_view_cannot_be_written_to(rig: Rig) -> None:
    job_id = await rig.enqueue()
    for statement in ("UPDATE {t}jobs SET priority = 5", "DELETE FROM {t}jobs"):
        with pytest.raises(Exception, match=r"(?i)cannot"):
            await rig.fetch(statement)
    assert (await rig.row(job_id))["priority"] == 0


CHEAP_ON_SQLITE = (
    "heartbeat_at = created_at",
    *("attempt = -1", "releases = -1", "losses = -1", "max_attempts = 0", "unique_mode = 'sometimes'"),
)


@each(
    "running, changes",
    [
        (
            False,
            [
                "state = 'running'",
                "state = 'nonsense'",
                "state = 'succeeded'",
                "lease_token = '00000000-0000-0000-0000-000000000001'",
                "locked_by = 'me'",
                *(f"{column} = created_at" for column in ("locked_at", "lease_expires_at")),
                "priority = 101",
                "priority = -101",
                "task = NULL",
            ],
        ),
        (
            True,
            [
                *(f"{column} = NULL" for column in ("lease_token", "locked_by", "locked_at", "lease_expires_at")),
                "ready = TRUE",
                "state = 'queued'",
                "state = 'retryable'",
            ],
        ),
    ],
    ids=["a waiting row has no lease", "a running row has a whole lease"],
    afresh=True,
)
async def test_the_table_defends_itself(rig: Rig, running: bool, changes: list[str]) -> None:
    await (rig.running() if running else rig.enqueue())
    before = await rig.everything()
    for change in [*changes, *(() if running or rig.store.engine == "postgres" else CHEAP_ON_SQLITE)]:
        with pytest.raises(Exception, match=r"(?i)constraint"):
            await rig.fetch(f"UPDATE {{t}}jobs_live SET {change}")
        assert await rig.everything() == before
