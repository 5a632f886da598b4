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
    """What one check found (ok, warn or fail) and, unless all is well, what to do."""

    level: str
    check: str
    text: str
    do: str = ""


@grouped_options
def doctor(target: DataTarget) -> None:
    """Check the whole set-up, and say what to do. Exit 1 if a check fails."""
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
        return [Finding("fail", "schema", first_line(str(error)), "run: rowlock migrate")]
    except StoreError as error:
        do = "check the address in --database or ROWLOCK_DATABASE_URL, and that the server runs"
        return [Finding("fail", "database", first_line(str(error)), do)]


async def _findings(app: Rowlock) -> AsyncIterator[Finding]:
    from rowlock.cli import checks, checks_around

    store = await app.store()
    about = await store.describe()
    yield checks.engine(about)
    yield checks.schema(store)
    yield checks.pooler(about, app.settings)
    yield await checks.wakeups(store, app.settings)
    now, finding = await checks.clock(store)
    yield finding
    for finding in [*await checks.work(store), *await checks_around.each_worker(store, now)]:
        yield finding
    for finding in [*await checks.left_over_limits(app), *await checks_around.schedules_and_sources(store)]:
        yield finding
    for finding in await checks.rows(store):
        yield finding
    yield await checks.leases(store, now, app.settings.worker.sweep_seconds)
    yield checks_around.zones(app.settings)
    if app.settings.results.url is None:
        yield checks_around.result_folder(app.settings)
    for finding in [*await checks_around.redis(app), *await checks_around.alert_messages(app)]:
        yield finding


def _show(findings: Iterable[Finding]) -> None:
    for level, check, text, do in findings:
        mark = typer.style(f"{level:<4}", fg=COLOURS[level]) if on_terminal() else f"{level:<4}"
        todo = f" → {do}" if do else ""
        print(f"{mark}  {check:<9} {printable(text + todo)}")
