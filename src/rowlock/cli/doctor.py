"""`rowlock doctor`: is everything as it should be?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, NamedTuple

import typer

from rowlock.cli.failures import FAILED, first_line
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import on_terminal, printable, show_json
from rowlock.cli.target import Target
from rowlock.core.errors import ConfigError, SchemaError, StoreError

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


class Finding(NamedTuple):
    """What one check found: ok, warn or fail."""

    level: str
    check: str
    text: str


def doctor(
    app: AppOption = None, config: ConfigOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Check the database, its schema, wake-ups, clocks, and work that nobody does. Exit 1 if something fails."""
    findings = run_async(_examine(Target(app, config, database).open()))
    if as_json:
        show_json([finding._asdict() for finding in findings])
    else:
        _show(findings)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(FAILED)


async def _examine(app: Rowlock) -> list[Finding]:
    try:
        async with app:
            return [finding async for finding in _findings(app)]
    except ConfigError:
        raise
    except SchemaError as error:
        return [Finding("fail", "schema", first_line(str(error)))]
    except StoreError as error:
        return [Finding("fail", "database", first_line(str(error)))]


async def _findings(app: Rowlock) -> AsyncIterator[Finding]:
    from rowlock.cli import checks

    store = await app.store()
    about = await store.describe()
    yield checks.engine(about)
    yield checks.schema(store)
    yield checks.pooler(about, app.settings)
    yield await checks.wakeups(store, app.settings)
    now, finding = await checks.clock(store)
    yield finding
    for finding in await checks.work(store):
        yield finding
    for finding in [*await checks.left_over_limits(app), *await checks.rows(store)]:
        yield finding
    yield await checks.leases(store, now, app.settings.worker.sweep_seconds)


def _show(findings: Iterable[Finding]) -> None:
    for level, check, text in findings:
        mark = typer.style(f"{level:<4}", fg=COLOURS[level]) if on_terminal() else f"{level:<4}"
        print(f"{mark}  {check:<9} {printable(text)}")
