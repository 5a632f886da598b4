"""`rowlock report`: how things went in a stretch of time, as one page that needs neither a server nor a network."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit import times
from rowlock.cli.kit.output import printable
from rowlock.cli.kit.target import Target
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock

LONGEST = timedelta(days=30)


def report(
    target: Target,
    html: Annotated[Path, typer.Option(metavar="FILE", help="Write the page to this file")],
    since: Annotated[
        str, typer.Option(metavar="TIME", help="From when on: 2h (ago), or an ISO time; 30 days at most")
    ] = "24h",
) -> None:
    """Write a page about an incident. Queues, run and wait times, failures, sources, schedules, operators; as HTML."""
    begin, end = times.since(since, "--since"), datetime.now(UTC)
    if not timedelta(0) < end - begin <= LONGEST:
        raise InvalidArguments(f"--since {since!r}: expected a time within the last 30 days")
    text = target.look(lambda app: _page(app, begin, end))
    try:
        html.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise InvalidArguments(f"--html {html}: cannot be written: {error.strerror}") from None
    print(printable(f"{html}: {len(text):,} characters, from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"))


async def _page(app: Rowlock, begin: datetime, end: datetime) -> str:
    from rowlock.cli.inspect.report_page import page
    from rowlock.client.version import VERSION
    from rowlock.store.engine.store import redact

    title = f"Rowlock {VERSION}, {redact(app.settings.database).partition('?')[0]}"
    return await page(await app.store(), title, begin, end)
