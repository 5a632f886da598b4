"""The live picture of `rowlock top`, until a key or a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rowlock.cli.inspect import top_tables as view
from rowlock.cli.inspect.problems import lines
from rowlock.cli.inspect.top import read
from rowlock.core.errors import StoreError
from rowlock.health.conditions import Condition
from rowlock.store.read.overview import Overview

if TYPE_CHECKING:
    from rowlock.app import Rowlock

PROBLEMS = 5  # lines about what is wrong


async def show(app: Rowlock, every: float) -> None:
    """Draw until a key or a signal ends it, also while a database that hangs is read. An outage of the database leaves
    the last picture, with the reason."""
    drawing = asyncio.ensure_future(_draw(app, every, resized := asyncio.Event()))

    def leave() -> None:
        if not drawing.cancelling():  # a second key must not cut off how the read that was cancelled ends
            drawing.cancel()

    with _keys(leave), _signals(leave, resized.set):
        await asyncio.wait([drawing])
    if not drawing.cancelled():
        drawing.result()


async def _draw(app: Rowlock, every: float, resized: asyncio.Event) -> None:
    console = Console()
    found: Overview | None = None
    before: Overview | None = None
    wrong: list[Condition] = []
    trouble = ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if not resized.is_set():  # a resized window is drawn again with what is known
                try:
                    (now, wrong), trouble = await read(app), ""
                    before, found = found, now
                except StoreError as error:
                    trouble = str(error).partition("\n")[0]
            resized.clear()
            if found is not None:
                height = console.height - bool(trouble)
                picture = view.picture(found, *view.rates(found, before), lines(wrong, PROBLEMS), height)
                note = [Text(trouble, style="red", no_wrap=True)] if trouble else []
                live.update(Group(picture, *note), refresh=True)
            elif trouble:
                live.update(Text(trouble, style="red"), refresh=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(every):  # wait_for of Python 3.11 loses a cancel that comes with the event
                    await resized.wait()


@contextmanager
def _keys(leave: Callable[[], None]) -> Iterator[None]:
    """Read single keys while the block runs: q or the end of the input leaves. The terminal is put back as it was."""
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
    """Leave by Ctrl-C and stop signals, without cutting anything off; draw again when the window changes its size."""
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGINT: leave, signal.SIGTERM: leave, signal.SIGHUP: leave, signal.SIGWINCH: resized}
    for number, handle in handlers.items():
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
