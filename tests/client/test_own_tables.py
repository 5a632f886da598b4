"""An app's own tables: numbered SQL files beside its code, applied with Rowlock's, once."""

import asyncio
from pathlib import Path

import pytest

from rowlock import ConfigError, Migrations, Rowlock, SchemaError, StoreError
from support.each import each


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    for engine in ("sqlite", "postgres"):
        (folder / engine).mkdir(parents=True)
        (folder / engine / "0001_tables.sql").write_text(
            "CREATE TABLE shop_carts (id integer PRIMARY KEY, note text);\n"
            "INSERT INTO shop_carts (id, note) VALUES (1, 'first; of all');\n"
        )
    return folder


@pytest.fixture
def empty(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database without any tables."""
    return f"sqlite:///{tmp_path}/empty.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")


def add(files: Path, name: str, sql: str) -> None:
    for engine in ("sqlite", "postgres"):
        (files / engine / name).write_text(sql)


async def carts(app: Rowlock) -> list[int]:
    async with app.transaction() as tx:
        return [row[0] for row in await tx.fetch("SELECT id FROM shop_carts ORDER BY id")]


async def test_an_apps_migrations_are_applied_once_together_with_rowlocks(empty: str, files: Path) -> None:
    app = Rowlock(empty, migrations=Migrations("shop", files))
    assert (await app.migrate())[-1] == "shop/0001_tables"
    assert await app.migrate() == []
    add(files, "0002_more.sql", "INSERT INTO shop_carts (id) VALUES (2)")
    assert await app.migrate() == ["shop/0002_more"]
    async with app:
        assert await carts(app) == [1, 2]


async def test_an_apps_migration_that_six_connections_start_together_is_applied_once(empty: str, files: Path) -> None:
    apps = [Rowlock(empty, migrations=Migrations("shop", files)) for _ in range(6)]
    done = await asyncio.gather(*(app.migrate() for app in apps))
    assert sum("shop/0001_tables" in names for names in done) == 1


async def test_a_file_that_fails_leaves_nothing_of_the_files_before_it(empty: str, files: Path) -> None:
    add(files, "0002_broken.sql", "CREATE TABLE shop_more (id integer); SELECT no_such_column;")
    app = Rowlock(empty, migrations=Migrations("shop", files))
    with pytest.raises(StoreError, match="no_such_column"):
        await app.migrate()
    add(files, "0002_broken.sql", "CREATE TABLE shop_more (id integer)")
    assert (await app.migrate())[-2:] == ["shop/0001_tables", "shop/0002_broken"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_sqlite_file_migrates_when_it_is_opened(empty: str, files: Path) -> None:
    async with Rowlock(empty, migrations=Migrations("shop", files)) as app:
        assert await carts(app) == [1]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_server_that_lacks_them_is_refused_with_the_command(empty: str, files: Path) -> None:
    await Rowlock(empty).migrate()
    app = Rowlock(empty, migrations=Migrations("shop", files))
    with pytest.raises(SchemaError, match=r"0001_tables of the app 'shop'; run: rowlock migrate --app"):
        await app.open()
    await app.migrate()
    async with app:
        assert await carts(app) == [1]


async def test_two_apps_in_one_database_have_numbers_of_their_own(empty: str, files: Path, tmp_path: Path) -> None:
    await Rowlock(empty, migrations=Migrations("shop", files)).migrate()
    other = tmp_path / "other"
    for engine in ("sqlite", "postgres"):
        (other / engine).mkdir(parents=True)
        (other / engine / "0001_tables.sql").write_text("CREATE TABLE other_things (id integer)")
    assert await Rowlock(empty, migrations=Migrations("other", other)).migrate() == ["other/0001_tables"]


@pytest.mark.parametrize("engine", ["sqlite"])
@each(
    "name, message",
    [("tables.sql", "named by its number, as in 0001_tables.sql"), ("1_again.sql", "two migrations with the number 1")],
)
async def test_a_misnamed_file_is_refused(empty: str, files: Path, name: str, message: str) -> None:
    add(files, name, "SELECT 1")
    with pytest.raises(ConfigError, match=message):
        await Rowlock(empty, migrations=Migrations("shop", files)).migrate()
    for engine in ("sqlite", "postgres"):
        (files / engine / name).unlink()


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_folder_that_is_not_there_is_refused(empty: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'shop' have no folder"):
        await Rowlock(empty, migrations=Migrations("shop", tmp_path / "nowhere")).migrate()
