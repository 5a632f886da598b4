"""The live picture of `rowlock top`, until a key or a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rowlock.cli import top_view as view
from rowlock.core.errors import StoreError
from rowlock.store.overview import Overview, overview

if TYPE_CHECKING:
    from rowlock.app import Rowlock

T = TypeVar("T")


async def show(app: Rowlock, every: float) -> None:
    """Draw until a key or a signal ends it. An outage of the database leaves the last picture, with the reason."""
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
                picture = view.picture(found, *view.rates(found, before), height=console.height - bool(trouble))
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
