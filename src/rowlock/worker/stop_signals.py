"""Which signals stop a process of ours, and what happens to its output when its terminal is closed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

# A closed terminal or a lost SSH connection sends SIGHUP, Ctrl-\ and some service managers send SIGQUIT. By default
# both end a process at once, and its jobs would wait for their leases to run out.
ALWAYS = (signal.SIGTERM, signal.SIGINT)
UNLESS_IGNORED = (signal.SIGHUP, signal.SIGQUIT)


def stop_signals() -> list[signal.Signals]:
    """The signals that stop this process. What `nohup`, or a shell that starts a job in the background, has made it
    ignore stays ignored."""
    heeded = [number for number in UNLESS_IGNORED if signal.getsignal(number) is not signal.SIG_IGN]
    return [*ALWAYS, *heeded]


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` for each signal that stops this process from now on."""
    loop, hung_up = asyncio.get_running_loop(), False

    def hang_up() -> None:
        """Stop at the first SIGHUP only: for one closed terminal, the kernel sends one and the shell another."""
        nonlocal hung_up
        if not hung_up:
            hung_up = True
            stop()

    for number in stop_signals():
        loop.add_signal_handler(number, hang_up if number == signal.SIGHUP else stop)


class Terminal:
    """The standard streams that are a terminal now."""

    def __init__(self, descriptors: Sequence[int] = (1, 2)) -> None:
        self._descriptors = [number for number in descriptors if _is_terminal(number)]

    def leave_if_closed(self) -> None:
        """Discard what is printed once the terminal is closed: an error in each `print()` would fail jobs that are
        about to finish."""
        for number in [number for number in self._descriptors if not _is_terminal(number)]:
            self._descriptors.remove(number)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False
