"""What `rowlock demo` prints while it runs: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rowlock.core.job import Job
from rowlock.core.states import State

if TYPE_CHECKING:
    from rich.console import RenderableType

EVENTS_SHOWN = 8
COLOURS = {
    State.QUEUED: "white",
    State.RUNNING: "cyan",
    State.RETRYABLE: "yellow",
    State.SUCCEEDED: "green",
    State.DEAD: "red",
    State.CANCELLED: "magenta",
}


class Screen(Protocol):
    """Shows the jobs as they are now and the latest events."""

    def update(self, rows: Sequence[Job], events: Sequence[str]) -> None: ...


@contextmanager
def open_screen(live: bool) -> Iterator[Screen]:
    """Open a live display or plain lines while the block runs."""
    if not live:
        yield Lines()
        return
    from rich.live import Live

    with Live(refresh_per_second=10) as picture:
        yield Picture(picture.update)


class Lines:
    """One line for each event, and the counts when they change."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._counts = ""

    def update(self, rows: Sequence[Job], events: Sequence[str]) -> None:
        """Print what is new."""
        for event in events:
            self._say(event)
        counts = counted(rows)
        if counts != self._counts:
            self._counts = counts
            self._say(counts)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


class Picture:
    """A live display: job states, progress bars and the last events."""

    def __init__(self, draw: Callable[..., None]) -> None:
        self._draw = draw
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._began = time.monotonic()

    def update(self, rows: Sequence[Job], events: Sequence[str]) -> None:
        """Draw."""
        from rich.console import Group
        from rich.text import Text

        now = time.monotonic() - self._began
        self._events.extend(f"{now:5.1f} s  {event}" for event in events)
        lines = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._events]
        self._draw(Group(_states(rows), _bars(rows), *lines), refresh=True)


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
