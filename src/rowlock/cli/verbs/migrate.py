"""`rowlock migrate`: bring the database's schema up to this version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import FAILED
from rowlock.cli.kit.output import show_json
from rowlock.cli.kit.target import DataTarget, run_async
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.engine.app_schema import AppMigration
    from rowlock.store.engine.dialects import Dialect
    from rowlock.store.engine.migrate import Applied


def migrate(
    target: DataTarget,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if migrations are pending")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print the pending migrations as SQL")] = False,
    roles: Annotated[
        bool,
        typer.Option("--roles", help="PostgreSQL: also create the roles rowlock_enqueue, _worker, _read and _admin"),
    ] = False,
) -> None:
    """Apply the missing migrations of Rowlock and of your app. SQLite files migrate when they are opened."""
    from rowlock.store.engine.roles import make, script
    from rowlock.store.engine.store import dialect_of

    if check and (sql or roles):
        raise InvalidArguments(f"give --check or {'--sql' if sql else '--roles'}, not both")
    app = target.open()
    if roles and dialect_of(app.database).is_file:
        raise InvalidArguments("--roles is for PostgreSQL: SQLite has no roles, only the permissions of the file")
    if check:
        _check(app, target)
    elif sql:
        _print_script(app)
        if roles:
            print(script(), end="")
    else:
        names = run_async(app.migrate())
        made = run_async(make(app.database)) if roles else None
        if made is not None and target.as_json:
            show_json({"applied": names, "roles": made})
            return
        _report("applied", names, target)
        if made is False:
            print("-- the roles were not created: you need CREATEROLE and rights on the schema. Ask an admin to run:")
            print(script(), end="")
        elif made:
            print("roles are up to date: rowlock_enqueue, rowlock_worker, rowlock_read, rowlock_admin")


def _check(app: Rowlock, target: DataTarget) -> None:
    from rowlock.store.engine.migrate import check
    from rowlock.store.engine.store import redact

    dialect, there, own, files = run_async(_missing(app))
    if not own:
        check(dialect, there, redact(app.database))  # raises if the schema is newer than this version supports
    names = [*own, *(f"{app.migrations.app}/{file.name}" for file in files if app.migrations)]
    _report("pending", names, target)
    raise typer.Exit(FAILED if names else 0)


def _print_script(app: Rowlock) -> None:
    from rowlock.store.engine import app_schema, migrate

    dialect, there, own, files = run_async(_missing(app))
    parts = [migrate.script(dialect, there)] if own else []
    if app.migrations is not None and files:
        parts.append(app_schema.script(dialect, app.migrations, files))
    print("\n".join(parts) or "-- nothing to apply: the schema is up to date")


async def _missing(app: Rowlock) -> tuple[Dialect, Applied, list[str], list[AppMigration]]:
    """The dialect, the applied migrations, and the pending ones of Rowlock and of the app. While Rowlock's own tables
    are behind, all the app's migrations count as pending."""
    from rowlock.store.engine import app_schema, migrate
    from rowlock.store.engine.migrate import applied
    from rowlock.store.engine.store import opened, redact

    dialect, there = await applied(app.database)
    migrate.refuse_unreleased(dialect, there, redact(app.database))
    missing = migrate.pending(dialect, there)
    own = migrate.titles(missing, migrate.changed(dialect, there))
    if app.migrations is None:
        return dialect, there, own, []
    if missing:
        return dialect, there, own, list(app.migrations.files(dialect.name))
    async with opened(app.database, app.store_options(migrate=False)) as store:
        return dialect, there, own, await app_schema.pending(store, app.migrations)


def _report(what: str, names: list[str], target: DataTarget) -> None:
    target.report({what: names}, *([f"{what} {name}" for name in names] or ["the schema is up to date"]))
