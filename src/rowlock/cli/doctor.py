"""`rowlock doctor`: checks of the database and of the workers that use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, NamedTuple

import typer

from rowlock.cli.failures import FAILED, first_line
from rowlock.cli.options import grouped_options
from rowlock.cli.output import on_terminal, printable, show_json
from rowlock.cli.target import DataTarget
from rowlock.core.errors import ConfigError, SchemaError, StoreError

if TYPE_CHECKING:
    from rowlock.app import Rowlock

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


class Finding(NamedTuple):
    """What one check found: ok, warn or fail."""

    level: str
    check: str
    text: str


@grouped_options
def doctor(target: DataTarget) -> None:
    """Check the database, its schema, wake-ups, clocks, and jobs that no worker serves. Exit 1 if a check fails."""
    findings = _examine(target)
    if target.as_json:
        show_json([finding._asdict() for finding in findings])
    else:
        _show(findings)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(FAILED)


def _examine(target: DataTarget) -> list[Finding]:
    async def collect(app: Rowlock) -> list[Finding]:
        return [finding async for finding in _findings(app)]

    try:
        return target.run(collect)
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
