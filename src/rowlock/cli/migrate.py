"""`rowlock migrate`: bring the database's schema up to this version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.failures import FAILED
from rowlock.cli.loop import run_async
from rowlock.cli.options import grouped_options
from rowlock.cli.output import show_json
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.app_schema import File


@grouped_options
def migrate(
    target: DataTarget,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if migrations are missing")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print the missing migrations as SQL")] = False,
    roles: Annotated[
        bool,
        typer.Option("--roles", help="PostgreSQL: also create the roles rowlock_enqueue, _worker, _read and _admin"),
    ] = False,
) -> None:
    """Apply the missing migrations of Rowlock and of your app. SQLite files migrate when they are opened."""
    if check and (sql or roles):
        raise InvalidArguments(f"give --check or {'--sql' if sql else '--roles'}, not both")
    app = target.open()
    if roles and app.database.startswith("sqlite:"):
        raise InvalidArguments("--roles is for PostgreSQL: SQLite has no roles, only the permissions of the file")
    if check:
        _check(app, target)
    elif sql:
        _print_script(app)
        if roles:
            _print_roles()
    else:
        names = run_async(app.migrate())
        made = _make_roles(app) if roles else None
        if made is not None and target.as_json:
            show_json({"applied": names, "roles": made})
            return
        _say("applied", names, target)
        if made is False:
            print("-- the roles were not created: that needs CREATEROLE and rights on the schema. Have this run:")
            _print_roles()
        elif made:
            print("these roles have their rights: rowlock_enqueue, rowlock_worker, rowlock_read, rowlock_admin")


def _make_roles(app: Rowlock) -> bool:
    from rowlock.store.roles import make

    return run_async(make(app.database))


def _print_roles() -> None:
    from rowlock.store.roles import script

    print(script(), end="")


def _check(app: Rowlock, target: DataTarget) -> None:
    from rowlock.store.engines.engine import redact
    from rowlock.store.migrate import check, pending
    from rowlock.store.schema import applied

    url = app.database
    engine, there = run_async(applied(url))
    missing = [f"{migration.number:04d}_{migration.name}" for migration in pending(engine, there)]
    if not missing:
        check(engine, there, redact(url))  # raises if the schema is newer than this version of Rowlock supports
    if app.migrations is not None:
        missing += [f"{app.migrations.app}/{file.name}" for file in _of_the_app(app, engine, bool(missing))]
    _say("pending", missing, target)
    raise typer.Exit(FAILED if missing else 0)


def _print_script(app: Rowlock) -> None:
    from rowlock.store import app_schema
    from rowlock.store.migrate import pending, script
    from rowlock.store.schema import applied

    engine, there = run_async(applied(app.database))
    own = pending(engine, there)
    parts = [script(engine, there)] if own else []
    if app.migrations is not None and (files := _of_the_app(app, engine, bool(own))):
        parts.append(app_schema.script(engine, app.migrations, files))
    print("\n".join(parts) or "-- nothing to apply: the schema is up to date")


def _of_the_app(app: Rowlock, engine: str, behind: bool) -> list[File]:
    """The app's own migrations that are not applied. While Rowlock's own tables are behind, all of them count."""
    from rowlock.store.app_schema import pending
    from rowlock.store.engines.opening import opened

    migrations = app.migrations
    assert migrations is not None
    if behind:
        return list(migrations.files(engine))

    async def ask() -> list[File]:
        async with opened(app.database, app.store_options(migrate=False)) as store:
            return await pending(store, migrations)

    return run_async(ask())


def _say(what: str, names: list[str], target: DataTarget) -> None:
    if target.as_json:
        show_json({what: names})
    elif names:
        print("\n".join(f"{what} {name}" for name in names))
    else:
        print("the schema is up to date")
