"""`python -m rowlock_apps.bookmarks`: import a file, show the progress of an import, cancel it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from rowlock import Rowlock, RowlockError

from .app import make_app
from .imports import Import, cancel_import, import_file, read_import

T = TypeVar("T")
commands = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
Database = Annotated[str | None, typer.Option(help="sqlite:///file.db or postgresql://…; else as the config says")]


User = Annotated[str, typer.Option(help="Whose bookmarks these are")]
ImportId = Annotated[str, typer.Argument(help="As `import` printed it")]


@commands.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The HTML file that the browser exports")],
    user: User,
    database: Database = None,
) -> None:
    """Place the bookmarks of a file and make the jobs that fetch its links; prints the import's id before it begins."""

    async def bring(app: Rowlock) -> Import:
        return await read_import(app, user, await import_file(app, user, file, begun=partial(print, flush=True)))

    found = _run(make_app(database), bring)
    if found.warning:
        print(f"bookmarks: {found.warning}", file=sys.stderr)


@commands.command()
def status(import_id: ImportId, user: User, database: Database = None) -> None:
    """Print the progress of an import."""
    _show(_run(make_app(database), lambda app: read_import(app, user, import_id)))


@commands.command()
def cancel(import_id: ImportId, user: User, database: Database = None) -> None:
    """Cancel the unfinished part of an import. Links that other imports share are still fetched for those."""
    _show(_run(make_app(database), lambda app: cancel_import(app, user, import_id)))


def _show(found: Import) -> None:
    print(json.dumps(dataclasses.asdict(found) | {"warning": found.warning}, indent=2, default=str))


def _run(app: Rowlock, work: Callable[[Rowlock], Coroutine[Any, Any, T]]) -> T:
    async def opened() -> T:
        async with app:
            return await work(app)

    try:
        return asyncio.run(opened())
    except RowlockError as error:
        print(f"bookmarks: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    commands()
