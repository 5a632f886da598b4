"""The output of the demos: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

EVENTS_SHOWN = 10
LINE_SECONDS = 1.0


class Stage:
    """`say` what happened; show how far each part is (`bar`) and numbers that change."""

    def __init__(self, picture: Live | None, line_seconds: float) -> None:
        self._picture, self._line_seconds = picture, line_seconds
        self._began = time.monotonic()
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._bars: dict[str, tuple[int, int]] = {}
        self._numbers: dict[str, Mapping[str, object]] = {}
        self._printed, self._last = 0.0, ""

    def say(self, text: str) -> None:
        """One thing that happened."""
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        if self._picture is None:
            print(line, flush=True)
        else:
            self._events.append(line)
            self._draw()

    def bar(self, name: str, done: int, total: int) -> None:
        """How far a part is."""
        self._bars[name] = (done, total)
        self._changed(done == total)

    def bars(self, bars: Mapping[str, tuple[int, int]]) -> None:
        """How far all parts are that are shown from now on."""
        self._bars = dict(bars)
        self._changed(False)

    def numbers(self, name: str, values: Mapping[str, object]) -> None:
        """Counts, after a name or without one: `jobs: 3 queued, 2 running`."""
        self._numbers[name] = dict(values)
        self._changed(False)

    def _changed(self, important: bool) -> None:
        if self._picture is not None:
            self._draw()
            return
        text = "   ".join(
            [f"{name} {done}/{total}" for name, (done, total) in self._bars.items()]
            + [f"{name}: {_spelt(values)}".removeprefix(": ") for name, values in self._numbers.items()]
        )
        now = time.monotonic()
        if text != self._last and (important or now - self._printed >= self._line_seconds):
            self._printed, self._last = now, text
            self.say(text)

    def _draw(self) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._picture is not None
        grid = Table.grid(padding=(0, 2))
        for name, (done, total) in self._bars.items():
            grid.add_row(name, ProgressBar(total=max(total, 1), completed=done, width=40), f"{done}/{total}")
        parts: list[RenderableType] = [grid]
        parts += [Text(f"{name}  {_spelt(values)}".lstrip(), style="cyan") for name, values in self._numbers.items()]
        parts += [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._events]
        self._picture.update(Group(*parts), refresh=True)


def _spelt(values: Mapping[str, object]) -> str:
    return ", ".join(f"{value} {name}" for name, value in values.items())


@contextmanager
def stage(live: bool, line_seconds: float = LINE_SECONDS) -> Iterator[Stage]:
    """A stage while the block runs. Without a live picture, changed counts are printed once in `line_seconds`."""
    if not live:
        yield Stage(None, line_seconds)
        return
    from rich.live import Live

    with Live(refresh_per_second=10) as picture:
        yield Stage(picture, line_seconds)
