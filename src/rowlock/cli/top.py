"""`rowlock top`: queues, sources and workers, live on a terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rowlock.cli.options import grouped_options
from rowlock.cli.output import on_terminal, record, show_json, show_table
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments, StoreError

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.overview import Overview

T = TypeVar("T")
LATELY_SECONDS = 300.0


@grouped_options
def top(
    target: DataTarget,
    once: Annotated[bool, typer.Option("--once", help="Print one picture as plain text and exit")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, max=3600, help="Seconds between two pictures")] = 2.0,
) -> None:
    """Show queues, sources and workers live; q or Ctrl-C leaves. Off a terminal use --once or --json."""
    from rowlock.store.overview import overview

    if once or target.as_json:
        found = target.ask(overview())
        if target.as_json:
            show_json(record(found))
        else:
            _print(found)
        return
    if not on_terminal():
        raise InvalidArguments("rowlock top needs a terminal; use --once for text or --json for data")
    with suppress(KeyboardInterrupt):
        target.run(lambda app: _live(app, every))


def _print(found: Overview) -> None:
    from rowlock.cli import top_view as view

    print(view.header(found, *_rates(found, None)))
    for columns, rows in (
        (view.QUEUES, view.queue_rows(found)),
        (view.SOURCES, view.source_rows(found)),
        (view.WORKERS, view.worker_rows(found)),
    ):
        if rows:
            print()
            show_table(rows, columns)


def _rates(found: Overview, before: Overview | None) -> tuple[float, float]:
    """Jobs that end in a second, since the last picture or in the last minutes; and the part of attempts that fail."""
    seconds = LATELY_SECONDS if before is None else (found.at - before.at).total_seconds()
    done = sum(queue.done for queue in found.queues) if before is None else found.ended - before.ended
    lately = sum(queue.done + queue.failed for queue in found.queues)
    failing = sum(queue.failed for queue in found.queues) / lately if lately else 0.0
    return max(0.0, done / seconds if seconds > 0 else 0.0), failing


async def _live(app: Rowlock, every: float) -> None:
    """Draw until a key or a signal ends it. An outage of the database leaves the last picture, with the reason."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from rowlock.cli import top_view as view
    from rowlock.store.overview import overview

    store = await app.store()
    console = Console()
    leave, draw = asyncio.Event(), asyncio.Event()
    found: Overview | None = None
    before: Overview | None = None
    trouble = ""
    with _keys(leave), _signals(leave, draw), Live(console=console, screen=True, auto_refresh=False) as live:
        while not leave.is_set():
            if not draw.is_set():  # a resized window is drawn again with what is known
                try:
                    now = await _unless(leave, store.run(overview()))
                    before, found, trouble = found, now or found, ""
                except StoreError as error:
                    trouble = str(error).partition("\n")[0]
            draw.clear()
            if found is not None:
                picture = view.picture(found, *_rates(found, before), height=console.height - bool(trouble))
                note = [Text(trouble, style="red", no_wrap=True)] if trouble else []
                live.update(Group(picture, *note), refresh=True)
            elif trouble:
                live.update(Text(trouble, style="red"), refresh=True)
            await _first(every, leave, draw)


async def _unless(leave: asyncio.Event, reading: Coroutine[Any, Any, T]) -> T | None:
    """What a read answers; None if the user leaves before: a database that hangs must not hold them."""
    task, leaving = asyncio.ensure_future(reading), asyncio.ensure_future(leave.wait())
    await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def _first(seconds: float, *events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()


@contextmanager
def _keys(leave: asyncio.Event) -> Iterator[None]:
    """Read single keys while the block runs: q or the end of the input leaves. The terminal is put back as it was."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        keys = os.read(descriptor, 100)
        if not keys or b"q" in keys.lower():
            leave.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _signals(leave: asyncio.Event, draw: asyncio.Event) -> Iterator[None]:
    """Leave by Ctrl-C and stop signals, without cutting anything off; draw again when the window changes its size."""
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGINT: leave, signal.SIGTERM: leave, signal.SIGHUP: leave, signal.SIGWINCH: draw}
    for number, event in handlers.items():
        loop.add_signal_handler(number, event.set)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
