"""Undoes a job's changes to its child process, so that they cannot harm the next job there.

Timers, signal handlers, umask and working folder are restored. A process with a closed stdout or a leftover thread is
replaced. Globals, environment variables and daemon threads stay, because programs use them for caches and clients.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import thread as executors
from contextlib import suppress
from typing import Any

THREAD_SECONDS = 0.1  # a thread that the job did not join may take this long to end
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Leftovers:
    """Restores this process after each job to its state before the first one."""

    def __init__(self, folder: str, watch_parent: Callable[[], None]) -> None:
        self._folder, self._watch_parent = folder, watch_parent
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        # getsignal returns None for a handler that C code has set.
        self._signals = {number: handler for number, handler in handlers.items() if handler is not None}
        self._streams = [_file(number) for number in (1, 2)]
        self.before_job()

    def before_job(self) -> None:
        """Remember the threads that modules and lifespans have started: they aren't the job's."""
        self._threads = set(threading.enumerate())

    def after_job(self) -> str | None:
        """Restore the process. Returns a description of what cannot be undone, or None."""
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        self._restore([number for number, handler in self._signals.items() if signal.getsignal(number) is not handler])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(self._mask)
        with suppress(OSError):  # it may have been removed
            os.chdir(self._folder)
        if [_file(number) for number in (1, 2)] != self._streams or _closed(sys.stdout) or _closed(sys.stderr):
            return "a closed or redirected stdout or stderr"
        if threads := self._left_threads():
            return f"a running thread ({threads[0].name})"
        return None

    def _restore(self, numbers: list[signal.Signals]) -> None:
        for number in numbers:
            signal.signal(number, self._signals[number])
        if signal.SIGHUP in numbers:
            self._watch_parent()

    def _left_threads(self) -> list[threading.Thread]:
        """Threads that the job has started and not joined, except the idle threads of executors, which are reused."""
        deadline = time.monotonic() + THREAD_SECONDS
        left = []
        for thread in set(threading.enumerate()) - self._threads:
            if not thread.daemon and getattr(thread, "_target", None) is not executors._worker:
                thread.join(max(0.0, deadline - time.monotonic()))
                left += [thread] if thread.is_alive() else []
        return left


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _closed(stream: Any) -> bool:
    return bool(getattr(stream, "closed", True))  # a job may have replaced the stream by any object, or None
