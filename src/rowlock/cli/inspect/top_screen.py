"""The screen of `rowlock top`: an overview as tables, refreshed until a key or a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rowlock.cli.inspect import stats
from rowlock.cli.kit.output import printable
from rowlock.core.errors import StoreError
from rowlock.core.times import spell
from rowlock.health.conditions import Condition
from rowlock.store.read.overview import Overview, QueueOverview
from rowlock.store.sources.sources import BusySource

PROBLEMS = 5  # lines about what is wrong
BARS = "▁▂▃▄▅▆▇█"
QUEUES = ("QUEUE", "READY", "LATER", "RUNNING", "OLDEST", "DONE/5m", "P95 RUN", "LAST 15 MIN")
SOURCES = ("SOURCE", "STATE", "RUNNING", "TOKENS", "OPENS IN")
WORKERS = ("WORKER", "SLOTS", "QUEUES", "SINCE")
COLOURS = {"open": "green", "paused": "yellow", "half-open": "yellow", "broken": "red", "disabled": "red"}
LEFT = {"QUEUE", "SOURCE", "STATE", "WORKER", "QUEUES", "LAST 15 MIN"}
OTHER_LINES = 7  # the header, three lines of column names, and the lines between the tables
LATELY_SECONDS = 300.0  # the overview counts the jobs that ended in this time


Read = Callable[[], Awaitable[tuple[Overview, list[Condition]]]]


async def show(read: Read, every: float) -> None:
    """Refresh the screen until a key or a signal ends it, even while a read hangs. If the database fails, the last
    picture stays, with the error below."""
    drawing = asyncio.ensure_future(_draw(read, every, resized := asyncio.Event()))

    def leave() -> None:
        if not drawing.cancelling():  # a second key must not interrupt the clean-up of the cancelled read
            drawing.cancel()

    with _keys(leave), _signals(leave, resized.set):
        await asyncio.wait([drawing])
    if not drawing.cancelled():
        drawing.result()


async def _draw(read: Read, every: float, resized: asyncio.Event) -> None:
    console = Console()
    found: Overview | None = None
    before: Overview | None = None
    wrong: list[Condition] = []
    trouble = ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if not resized.is_set():  # after a resize, redraw without reading
                try:
                    (now, wrong), trouble = await read(), ""
                    before, found = found, now
                except StoreError as error:
                    trouble = str(error).partition("\n")[0]
            resized.clear()
            parts = [] if found is None else picture(found, before, wrong, console.height - bool(trouble))
            if trouble:
                parts.append(Text(trouble, style="red", no_wrap=bool(parts)))
            live.update(Group(*parts), refresh=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(every):  # Python 3.11's wait_for may lose a cancel that races with the event
                    await resized.wait()


@contextmanager
def _keys(leave: Callable[[], None]) -> Iterator[None]:
    """Read single keys during the block, and leave on q or at the end of the input. Restores the terminal after it."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        keys = os.read(descriptor, 100)
        if not keys or b"q" in keys.lower():
            leave()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _signals(leave: Callable[[], None], resized: Callable[[], None]) -> Iterator[None]:
    """Leave on Ctrl-C and stop signals; redraw when the window is resized."""
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGINT: leave, signal.SIGTERM: leave, signal.SIGHUP: leave, signal.SIGWINCH: resized}
    for number, handle in handlers.items():
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


# --- the picture


def picture(found: Overview, before: Overview | None, wrong: Sequence[Condition], height: int) -> list[RenderableType]:
    """The whole screen, with as many rows of each table as fit into this height."""
    problems, shown = stats.lines(wrong, PROBLEMS), tables(found)
    room = shares([len(rows) for _, rows in shown], max(3, height - OTHER_LINES - len(shown) - len(problems)))
    parts: list[RenderableType] = [Text(header(found, before), style="bold", no_wrap=True)]
    parts += [Text(line, style="red", no_wrap=True, overflow="ellipsis") for line in problems]
    for (columns, rows), most in zip(shown, room, strict=True):
        parts.append(_table(columns, rows[:most]))
        if len(rows) > most:
            parts.append(Text(f"  and {len(rows) - most} more", style="dim"))
    return [*parts, Text("quit with q or Ctrl-C", style="dim")]


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each table gets: all of its rows if there is room, else an equal share of the remaining room."""
    given = [0] * len(wanted)
    smallest_first = sorted((n for n, want in enumerate(wanted) if want), key=wanted.__getitem__)
    for done, n in enumerate(smallest_first):
        given[n] = min(wanted[n], max(1, room // (len(smallest_first) - done)))
        room -= given[n]
    return given


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in LEFT else "right", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(text, style=COLOURS.get(text, "")) for text in row))
    if not rows:
        table.add_row(Text("none", style="dim"))
    return table


def header(found: Overview, before: Overview | None) -> str:
    """Workers, slots, speed and failures on one line. The speed is since the last picture, or else of some minutes."""
    lately, failed = sum(queue.done for queue in found.queues), sum(queue.failed for queue in found.queues)
    done, seconds = lately, LATELY_SECONDS
    if before is not None:
        done, seconds = found.ended - before.ended, (found.at - before.at).total_seconds()
    per_second = max(0.0, done / seconds) if seconds > 0 else 0.0
    busy = sum(worker.running for worker in found.workers)
    about = "" if found.exact else " · numbers are lower bounds"
    return (
        f"workers {len(found.workers)} · slots {busy}/{found.slots} · {speed(per_second)} jobs/s"
        f" · failed {failed * 100 / max(1, lately + failed):.1f} %{about}"
    )


def tables(found: Overview) -> list[tuple[Sequence[str], list[tuple[str, ...]]]]:
    """Columns and rows of three tables: queues, sources that are closed or in use, and live workers."""
    workers: list[tuple[str, ...]] = [
        (
            printable(worker.id),
            f"{worker.running}/{worker.pool_size}",
            printable(", ".join(worker.queues)),
            span((found.at - worker.started_at).total_seconds()),
        )
        for worker in found.workers
    ]
    return [(QUEUES, [*map(_queue, found.queues)]), (SOURCES, [*map(_source, found.sources)]), (WORKERS, workers)]


def _queue(queue: QueueOverview) -> tuple[str, ...]:
    live = queue.live
    name = f"{printable(live.name)} (paused)" if live.paused else printable(live.name)
    return (
        name,
        number(live.ready),
        number(live.waiting),
        number(live.running),
        span(live.oldest_ready_seconds),
        number(queue.done),
        span(queue.p95_run_seconds),
        sparkline(queue.minutes),
    )


def _source(source: BusySource) -> tuple[str, ...]:
    running = str(source.running) if source.concurrency is None else f"{source.running}/{source.concurrency}"
    tokens = "-" if source.tokens is None else f"{int(max(source.tokens, 0))}/{source.burst}"
    return printable(source.name), source.state, running, tokens, span(source.paused_for)


# --- words and numbers


def number(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def speed(per_second: float) -> str:
    return f"{per_second:.1f}" if per_second < 10 else number(round(per_second))


def span(seconds: float | None) -> str:
    return "-" if seconds is None else spell(seconds)


def sparkline(counts: Sequence[int]) -> str:
    """One bar per number, scaled to the largest; the lowest bar means 0."""
    most = max(counts, default=0)
    if not most:
        return BARS[0] * len(counts)
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in counts)
