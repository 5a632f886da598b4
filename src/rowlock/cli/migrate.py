"""`rowlock migrate`: bring the database's schema up to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli.failures import FAILED
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import show_json
from rowlock.cli.target import Target
from rowlock.core.errors import InvalidArguments


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if migrations are missing")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print what is missing as SQL")] = False,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply the migrations that the database lacks. SQLite files migrate by themselves when they are opened."""
    if check and sql:
        raise InvalidArguments("give --check or --sql, not both")
    opened = Target(app, config, database).open()
    url = opened.settings.database
    if check:
        _check(url, as_json)
    elif sql:
        _print_script(url)
    else:
        names = run_async(opened.migrate())
        _say("applied", names, as_json)


def _check(url: str, as_json: bool) -> None:
    from rowlock.store.engine import redact
    from rowlock.store.migrate import check, pending
    from rowlock.store.schema import applied

    engine, there = run_async(applied(url))
    missing = [f"{migration.number:04d}_{migration.name}" for migration in pending(engine, there)]
    if not missing:
        check(engine, there, redact(url))  # it may be newer than this code can use
    _say("pending", missing, as_json)
    raise typer.Exit(FAILED if missing else 0)


def _print_script(url: str) -> None:
    from rowlock.store.migrate import pending, script
    from rowlock.store.schema import applied

    engine, there = run_async(applied(url))
    print(script(engine, there) if pending(engine, there) else "-- nothing to apply: the schema is up to date")


def _say(what: str, names: list[str], as_json: bool) -> None:
    if as_json:
        show_json({what: names})
    elif names:
        print("\n".join(f"{what} {name}" for name in names))
    else:
        print("the schema is up to date")
