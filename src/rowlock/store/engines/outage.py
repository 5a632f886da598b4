"""One record of outages for each database and process, so that the log mentions each outage once.

A worker has half a dozen parts that all notice an outage, and each tries again several times a second. They report to
this record instead of the log: it writes a line when an outage begins, one a minute while it lasts, and one when it is
over. An outage is over when requests succeed and no part has failed for longer than any of them waits before it tries
again; until then a success may be one of the requests that still work, such as a read on a full disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("rowlock.store")

MINUTE = 60.0
QUIET_SECONDS = 6.0  # no part waits longer before it tries again


class Outage:
    """What a process knows about whether one database can be used. Called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self.began: float | None = None  # None: no outage
        self._failed = self._told = 0.0
        self._back: float | None = None  # the first success after the last failure

    def failed(self, part: str, error: BaseException) -> None:
        """A part of the process could not do its work, and will try again."""
        lines: list[tuple[int, str]] = []
        with self._lock:
            now = self._clock()
            if self.began is not None and now - self._failed > MINUTE and self._back is not None:
                lines.append(self._end())
            self._failed, self._back = now, None
            if self.began is None:
                self.began = self._told = now
                said = f"database outage, noticed by {part}: {error}; trying again until it works"
                lines.append((logging.WARNING, said))
            elif now - self._told >= MINUTE:
                self._told = now
                lines.append((logging.WARNING, f"database outage for {now - self.began:.0f} s, {part}: {error}"))
            else:
                lines.append((logging.DEBUG, f"{part}: {error}"))
        _say(lines)

    def worked(self) -> None:
        """A request succeeded. Worth calling only while `began` is set."""
        lines: list[tuple[int, str]] = []
        with self._lock:
            if self.began is None:
                return
            now = self._clock()
            self._back = self._back or now
            if now - self._failed >= QUIET_SECONDS:
                lines.append(self._end())
        _say(lines)

    def _end(self) -> tuple[int, str]:
        assert self.began is not None
        assert self._back is not None
        said = f"database outage over after {self._back - self.began:.1f} s"
        self.began = self._back = None
        return logging.WARNING, said


def _say(lines: list[tuple[int, str]]) -> None:
    """Log these lines, after the lock was released: a log handler is user code, and may use the database itself."""
    for level, said in lines:
        log.log(level, "%s", said)


_outages: dict[str, Outage] = {}


def outage_of(database: str) -> Outage:
    """The record of one database, the same for all stores of this process that have it open."""
    return _outages.setdefault(database, Outage())
