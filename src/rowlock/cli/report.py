"""`rowlock report`: how things went in a stretch of time, as one page that needs neither a server nor a network."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import times
from rowlock.cli.options import grouped_options
from rowlock.cli.output import printable
from rowlock.cli.target import Target
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.report_page import Report

LONGEST = timedelta(days=30)
MOST_STEPS = 120
MOST_ROWS = 100
STEPS = (60, 300, 900, 3600, 4 * 3600, 24 * 3600)
HOURS_FROM = timedelta(hours=24)  # beyond it the counters are kept by hours


@grouped_options
def report(
    target: Target,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Write the page to this file")],
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="From when on: 2h (ago), or an ISO time; 30 days at most")
    ] = "24h",
) -> None:
    """Write a page about an incident. Queues, run and wait times, failures, sources, schedules, operators; as HTML."""
    begin, end = times.since(since, "--since"), datetime.now(UTC)
    if not timedelta(0) < end - begin <= LONGEST:
        raise InvalidArguments(f"--since {since!r}: expected a time within the last 30 days")
    from rowlock.cli.report_page import page

    text = page(target.run(lambda app: _read(app, begin, end)))
    try:
        html.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise InvalidArguments(f"--html {html}: cannot be written: {error.strerror}") from None
    print(printable(f"{html}: {len(text):,} characters, from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"))


async def _read(app: Rowlock, begin: datetime, end: datetime) -> Report:
    """The reads of the dashboard, for this time."""
    from rowlock.cli.report_page import Report
    from rowlock.client.version import VERSION
    from rowlock.store import audit, panels, reads, schedules, sources, tallies, workers
    from rowlock.store.engines.engine import redact

    store = await app.store()
    seconds = (end - begin).total_seconds()
    step = next((one for one in STEPS if seconds / one <= MOST_STEPS), STEPS[-1])
    kept = 3600 if end - begin > HOURS_FROM else 60
    step = max(step, kept)
    first = begin - timedelta(seconds=begin.timestamp() % step)
    named, known = await store.run(schedules.schedules(MOST_ROWS)), await store.run(sources.sources(MOST_ROWS))
    return Report(
        begin=begin,
        end=end,
        step=step,
        first=first,
        title=f"Rowlock {VERSION}, {redact(app.settings.database).partition('?')[0]}",
        ends=await store.run(tallies.by_time(first, None, None, kept)),
        depth=await store.run(tallies.samples(begin)),
        runs=await store.run(tallies.heat("run", first, None, None, kept)),
        waits=await store.run(tallies.heat("wait", first, None, None, kept)),
        queues=(await store.run(reads.stats())).queues,
        spread=await store.run(tallies.spread(max(begin, end - HOURS_FROM))),
        workers=await store.run(workers.workers()),
        failures=await store.run(panels.failures(begin, end)),
        sources=known,
        strips=await store.run(panels.source_strips([source.name for source in known])),
        schedules=named,
        ticks=await store.run(panels.ticks(named)),
        audit=[entry for entry in await store.run(audit.entries(MOST_ROWS)) if entry.at >= begin],
    )
