"""`python -m rowlock_apps.bookmarks`: import a file, and see how an import stands."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from rowlock import Rowlock, RowlockError

from .app import make_app
from .imports import import_file, read_import

T = TypeVar("T")
commands = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
Database = Annotated[str | None, typer.Option(help="sqlite:///file.db or postgresql://…; else as the config says")]


@commands.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The HTML file that the browser exports")],
    user: Annotated[str, typer.Option(help="Whose bookmarks these are")],
    database: Database = None,
) -> None:
    """Place the bookmarks of a file and make the jobs that fetch its links; prints the import's id."""
    print(_run(make_app(database), lambda app: import_file(app, user, file)))


@commands.command()
def status(import_id: Annotated[str, typer.Argument(help="As `import` printed it")], database: Database = None) -> None:
    """How far an import is."""
    found = _run(make_app(database), lambda app: read_import(app, import_id))
    print(json.dumps(dataclasses.asdict(found), indent=2, default=str))


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
