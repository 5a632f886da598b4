"""What a child process prints and logs, as lines of the worker's own log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rowlock.signals.logs import one_line

LINE_LIMIT = 10_000  # characters
LINES_PER_SECOND = 1000
LAST_LINES = 20


class Output:
    """What a child prints and logs, as lines of the worker's log. Of more than 1,000 lines a second, the first 1,000
    and the last 20 are written. `keep` gets the lines that are kept with the job."""

    def __init__(self, logger: str, extra: Mapping[str, Any], keep: Callable[[str, str], None] | None = None) -> None:
        self._log, self._extra = logging.getLogger(logger), dict(extra)
        self._keep = keep
        self._rest = b""
        self._second, self._count, self._left_out = 0, 0, 0
        self._last: deque[tuple[int, str]] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Log the whole lines among these bytes from the pipe, and keep the unfinished one."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_LIMIT * 4]  # of an unfinished line keep only what will be logged
        for line in lines:
            self._line(logging.INFO, line.decode("utf-8", "backslashreplace"))

    def record(self, level: int, logger: str, text: str) -> None:
        """Log a record of one of the child's loggers."""
        if logging.getLogger(logger).isEnabledFor(level):
            prefix = "" if logger == self._log.name else f"{logger}: "
            for line in text.split("\n"):
                self._line(level, prefix + line)

    def keep(self, level: str, text: str) -> None:
        """Keep a line with the job."""
        if self._keep is not None:
            self._keep(level, text)

    def end(self) -> None:
        """The job has ended: log the unfinished line and the last lines."""
        if self._rest:
            self.feed(b"\n")
        self._show_last()

    def refresh(self) -> None:
        """At the beginning of each second, log what was held back and count anew. Must be called at least once a
        second."""
        second = int(time.monotonic())
        if second != self._second:
            self._show_last()
            self._second, self._count = second, 0

    def _line(self, level: int, text: str) -> None:
        self.refresh()
        self._count += 1
        if self._count <= LINES_PER_SECOND:
            self._write(level, text)
            return
        self._left_out += len(self._last) == LAST_LINES
        self._last.append((level, text))

    def _show_last(self) -> None:
        if self._left_out:
            self._log.warning("%d lines are left out here", self._left_out, extra=self._extra)
        for level, text in self._last:
            self._write(level, text)
        self._left_out = 0
        self._last.clear()

    def _write(self, level: int, text: str) -> None:
        if text := text.rstrip():
            cut = " …(cut)" if len(text) > LINE_LIMIT else ""
            self._log.log(level, "%s%s", one_line(text, LINE_LIMIT), cut, extra=self._extra)
