"""What a child process tells its parent while a job runs: progress, log records, and lines to keep with the job."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from rowlock.client.context import Report
from rowlock.core.error_text import clean
from rowlock.core.job import Claimed
from rowlock.store.read.job_logs import MOST_TEXT
from rowlock.worker.attempt.attempt import LiveAttempt

PROGRESS_SECONDS = 0.05
RECORD_LIMIT = 100_000  # characters of one log record


class Progress:
    """Progress of the attempt that runs: the latest goes to the parent, at most twenty times a second."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send, self._wake, self._lock = send, threading.Event(), threading.Lock()
        self._latest: tuple[int | None, str | None, str | None] | None = None
        self._running: LiveAttempt | None = None
        threading.Thread(target=self._repeat, name="rowlock-progress", daemon=True).start()

    def reporter(self, running: LiveAttempt) -> Report:
        """The function behind `ctx.progress` of one attempt. After the attempt has ended it does nothing: a thread that
        the attempt left behind would otherwise report progress for the next attempt."""
        self._running = running

        def report(percent: int | None, phase: str | None, message: str | None) -> None:
            with self._lock:
                if self._running is not running:
                    return
                if percent is None and self._latest is not None:
                    percent = self._latest[0]
                self._latest = (percent, _short(phase), _short(message))
            self._wake.set()

        return report

    def end(self) -> None:
        """The attempt has ended: send what is not sent yet, and take no more."""
        with self._lock:
            self._flush()
            self._running = None

    def _flush(self) -> None:
        latest, self._latest = self._latest, None
        if latest is not None:
            self._send("progress", *latest)

    def _repeat(self) -> None:
        pause = threading.Event()
        while self._wake.wait():
            self._wake.clear()
            with self._lock:
                self._flush()
            pause.wait(PROGRESS_SECONDS)


def _short(text: str | None) -> str | None:
    return None if text is None else clean(str(text), 2000)


class Lines:
    """What handlers write to `ctx.log` of tasks that keep it: the parent writes it to the database."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send

    def keeper(self, job: Claimed) -> Callable[[str, str], None]:
        """The function that keeps a line (level, message) of one attempt."""
        return lambda level, message: self._send("line", level, clean(message, MOST_TEXT))


class ToParent(logging.Handler):
    """Log records become lines of the parent's log."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send, self._pid = send, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        try:
            if os.getpid() != self._pid:  # in a fork: two processes that write to the pipe would garble it
                os.write(2, f"{self.format(record)[:RECORD_LIMIT]}\n".encode(errors="backslashreplace"))
                return
            self._send("log", record.levelno, record.name, self.format(record)[:RECORD_LIMIT])
        except Exception:
            self.handleError(record)
