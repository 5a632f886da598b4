"""`rowlock migrate`: bring the database's schema up to this version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.failures import FAILED
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import show_json
from rowlock.cli.target import Target
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.store.app_schema import File
    from rowlock.work.app import Rowlock


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if migrations are missing")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print what is missing as SQL")] = False,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply the migrations that the database lacks, and those of your app. SQLite files migrate when opened."""
    if check and sql:
        raise InvalidArguments("give --check or --sql, not both")
    opened = Target(app, config, database).open()
    if check:
        _check(opened, as_json)
    elif sql:
        _print_script(opened)
    else:
        names = run_async(opened.migrate())
        _say("applied", names, as_json)


def _check(opened: Rowlock, as_json: bool) -> None:
    from rowlock.store.engine import redact
    from rowlock.store.migrate import check, pending
    from rowlock.store.schema import applied

    url = opened.database
    engine, there = run_async(applied(url))
    missing = [f"{migration.number:04d}_{migration.name}" for migration in pending(engine, there)]
    if not missing:
        check(engine, there, redact(url))  # it may be newer than this code can use
    if opened.migrations is not None:
        missing += [f"{opened.migrations.app}/{file.name}" for file in _of_the_app(opened, engine, bool(missing))]
    _say("pending", missing, as_json)
    raise typer.Exit(FAILED if missing else 0)


def _print_script(opened: Rowlock) -> None:
    from rowlock.store import app_schema
    from rowlock.store.migrate import pending, script
    from rowlock.store.schema import applied

    engine, there = run_async(applied(opened.database))
    own = pending(engine, there)
    parts = [script(engine, there)] if own else []
    if opened.migrations is not None and (files := _of_the_app(opened, engine, bool(own))):
        parts.append(app_schema.script(engine, opened.migrations, files))
    print("\n".join(parts) or "-- nothing to apply: the schema is up to date")


def _of_the_app(opened: Rowlock, engine: str, behind: bool) -> list[File]:
    """The app's own migrations that are missing. A database that lacks some of Rowlock's cannot be asked."""
    from rowlock.store.app_schema import pending
    from rowlock.store.engine import opened as opened_store

    migrations = opened.migrations
    assert migrations is not None
    if behind:
        return list(migrations.files(engine))

    async def ask() -> list[File]:
        async with opened_store(opened.database, opened.store_options(migrate=False)) as store:
            return await pending(store, migrations)

    return run_async(ask())


def _say(what: str, names: list[str], as_json: bool) -> None:
    if as_json:
        show_json({what: names})
    elif names:
        print("\n".join(f"{what} {name}" for name in names))
    else:
        print("the schema is up to date")
