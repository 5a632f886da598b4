"""`rowlock doctor`: checks of the database and of the workers that use it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import typer

from rowlock.cli.kit.failures import FAILED, first_line
from rowlock.cli.kit.output import on_terminal, printable, show_json
from rowlock.cli.kit.target import DataTarget
from rowlock.core.errors import ConfigError, SchemaError, StorageFull, StoreError, UnreleasedSchema

if TYPE_CHECKING:
    from rowlock.app import Rowlock

MAKE_ROOM = "free space on the database's disk, or enlarge it; writes then work again without a restart"
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


class Finding(NamedTuple):
    """The result of one check (ok, warn or fail), and what to do about it."""

    level: str
    check: str
    text: str
    do: str = ""


def doctor(target: DataTarget) -> None:
    """Check the whole setup, and suggest fixes. Exit 1 if a check fails."""
    findings = _examine(target)
    if target.as_json:
        show_json(findings)
    else:
        _show(findings)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(FAILED)


def _examine(target: DataTarget) -> list[Finding]:
    try:
        return target.look(_findings)
    except ConfigError:
        raise
    except UnreleasedSchema as error:
        return [Finding("fail", "schema", first_line(str(error)))]
    except SchemaError as error:
        return [Finding("fail", "schema", first_line(str(error)), "run: rowlock migrate")]
    except StorageFull as error:
        return [Finding("fail", "disk", first_line(str(error)), MAKE_ROOM)]
    except StoreError as error:
        do = "check the address in --database or ROWLOCK_DATABASE_URL, and that the server runs"
        return [Finding("fail", "database", first_line(str(error)), do)]


async def _findings(app: Rowlock) -> list[Finding]:
    from rowlock.cli.inspect import checks
    from rowlock.store.read.snapshot import snapshot

    store, settings = await app.store(), app.settings
    about = await store.describe()
    return [
        checks.engine(about),
        checks.schema(store),
        await checks.disk(store),
        checks.pooler(about, settings),
        await checks.wakeups(store, settings),
        await checks.clock(store),
        *checks.conditions(await store.run(snapshot())),
        *await checks.left_over_limits(app),
        checks.zones(settings),
        *([checks.result_folder(settings)] if settings.results.url is None else []),
        *await checks.redis(app),
        *await checks.alert_messages(app),
    ]


def _show(findings: Iterable[Finding]) -> None:
    for level, check, text, do in findings:
        mark = typer.style(f"{level:<4}", fg=COLOURS[level]) if on_terminal() else f"{level:<4}"
        todo = f" → {do}" if do else ""
        print(f"{mark}  {check:<9} {printable(text + todo)}")
