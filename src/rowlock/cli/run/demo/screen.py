"""What `rowlock demo` prints while it runs: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rowlock.core.job import Job
from rowlock.core.states import State

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

EVENTS_SHOWN = 8
COLOURS = {
    State.QUEUED: "white",
    State.RUNNING: "cyan",
    State.RETRYABLE: "yellow",
    State.SUCCEEDED: "green",
    State.DEAD: "red",
    State.CANCELLED: "magenta",
}


@contextmanager
def open_screen(live: bool) -> Iterator[Screen]:
    """Open a live display, or print plain lines, while the block runs."""
    if not live:
        yield Screen(None)
        return
    from rich.live import Live

    with Live(refresh_per_second=10) as picture:
        yield Screen(picture)


class Screen:
    """Shows the jobs as they are now and the latest events. Without a picture: one line for each event, and the counts
    when they change."""

    def __init__(self, picture: Live | None) -> None:
        self._picture = picture
        self._began = time.monotonic()
        self._lines: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._counts = ""

    def update(self, rows: Sequence[Job], events: Sequence[str]) -> None:
        """Show what is new."""
        if self._picture is None and (counts := counted(rows)) != self._counts:
            self._counts, events = counts, [*events, counts]
        lines = [f"{time.monotonic() - self._began:5.1f} s  {event}" for event in events]
        if self._picture is None:
            for line in lines:
                print(line, flush=True)
            return
        from rich.console import Group
        from rich.text import Text

        self._lines.extend(lines)
        shown = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._lines]
        self._picture.update(Group(_states(rows), _bars(rows), *shown), refresh=True)


def _states(rows: Sequence[Job]) -> RenderableType:
    from rich import box
    from rich.table import Table

    counts = Counter(row.state for row in rows)
    table = Table(box=box.SIMPLE_HEAD)
    for state in State:
        table.add_column(state, justify="right", style=COLOURS[state], header_style=COLOURS[state])
    table.add_row(*(str(counts[state]) for state in State))
    return table


def _bars(rows: Sequence[Job]) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for row in rows:
        if row.state is State.RUNNING and row.progress is not None:
            table.add_row(row.task, ProgressBar(total=100, completed=row.progress, width=30), row.message or row.phase)
    return table


def counted(rows: Sequence[Job]) -> str:
    """`3 queued, 2 running, …`"""
    counts = Counter(row.state for row in rows)
    return ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
