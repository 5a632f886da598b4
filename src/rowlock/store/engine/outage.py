"""One record of outages for each server and process, so that an outage doesn't flood the log.

A worker has half a dozen parts that all notice an outage and retry several times a second. They report to this record
instead of the log, and it logs one line when an outage begins, one per minute while it lasts, and one when it is over.

An outage is a state in which work can't be done: a full disk, or a second of failures without a success. A single
connection that breaks while others work is not an outage. It is over once requests succeed and no part has failed for
longer than any part waits between tries; an earlier success may be a request that still works, such as a read on a full
disk. The first success wakes the parts that are waiting for their next try.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from rowlock.core.errors import StorageFull

log = logging.getLogger("rowlock.store")

MINUTE = 60.0
QUIET_SECONDS = 6.0  # longer than any part waits between tries
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # between tries, for parts that use `pause`
SILENT_SECONDS = 1.0  # of failures without a success before they count as an outage
WAKE_SECONDS = 1.0  # between two wake-ups: on a full disk, reads succeed all the time


class Sleeper(Protocol):
    """A part of the process that waits between tries."""

    def database_is_back(self) -> None:
        """Try again now. Called from any thread."""


class Outage:
    """Whether one server (the database or Redis) can be used, as far as this process knows. Called from any thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        of: str = "database",
        logger: logging.Logger = log,
    ) -> None:
        self._clock, self._of, self._log, self._lock = clock, of, logger, threading.Lock()
        self.began: float | None = None  # the first failure; None: nothing has failed since the last outage
        self._logged = False  # it is an outage, and has been logged
        self._failed = self._logged_at = 0.0  # the last failure, the last line in the log
        self._failing_since = 0.0  # since then there has been a failure at least every QUIET_SECONDS
        self._back: float | None = None  # the first success after the last failure
        self._woken = float("-inf")  # the last wake-up
        self._sleepers: WeakSet[Sleeper] = WeakSet()

    @property
    def lasts(self) -> bool:
        """Whether there is an outage now, as far as this process knows."""
        return self._logged

    def wake_when_back(self, sleeper: Sleeper) -> None:
        """Call `sleeper.database_is_back()` at the first success after a failure."""
        with self._lock:
            self._sleepers.add(sleeper)

    @property
    def pause(self) -> float:
        """Seconds to wait before the next try: as long as the failures have lasted, within bounds."""
        began = self.began
        return FIRST_PAUSE if began is None else min(LONGEST_PAUSE, FIRST_PAUSE + self._clock() - began)

    def failed(self, part: str, error: BaseException | str) -> None:
        """Report that a part of the process could not do its work and will try again."""
        lines: list[tuple[int, str]] = []
        with self._lock:
            now = self._clock()
            if self._logged and now - self._failed > MINUTE and self._back is not None:
                lines.append(self._end())
            if now - self._failed > QUIET_SECONDS:
                self._failing_since = now
            self._failed, self._back = now, None
            if self.began is None:
                self.began = now
            if self._logged and now - self._logged_at >= MINUTE:
                self._logged_at = now
                lines.append((logging.WARNING, f"{self._of} outage for {now - self.began:.0f} s, {part}: {error}"))
            elif not self._logged and (isinstance(error, StorageFull) or now - self.began >= SILENT_SECONDS):
                self._logged, self._logged_at = True, self.began
                line = f"{self._of} outage, noticed by {part}: {error}; trying again until it works"
                lines.append((logging.WARNING, line))
            elif not self._logged and now - max(self._failing_since, self._logged_at) >= MINUTE:
                self._logged_at = now
                lasted = now - self._failing_since
                lines.append((logging.WARNING, f"some requests fail for {lasted:.0f} s, others work, {part}: {error}"))
            else:
                lines.append((logging.DEBUG, f"{part}: {error}"))
        self._write(lines)

    def worked(self) -> None:
        """Report that a request succeeded. Only useful while `began` is set."""
        lines: list[tuple[int, str]] = []
        sleepers: list[Sleeper] = []
        with self._lock:
            if self.began is None:
                return
            now = self._clock()
            if self._back is None and now - self._woken >= WAKE_SECONDS:
                self._woken = now
                sleepers = list(self._sleepers)
            self._back = self._back or now
            if not self._logged:
                self.began = self._back = None
            elif now - self._failed >= QUIET_SECONDS:
                lines.append(self._end())
        for sleeper in sleepers:
            sleeper.database_is_back()
        self._write(lines)

    def _end(self) -> tuple[int, str]:
        assert self.began is not None
        assert self._back is not None
        line = f"{self._of} outage over after {self._back - self.began:.1f} s"
        self.began, self._back, self._logged = None, None, False
        return logging.WARNING, line

    def _write(self, lines: list[tuple[int, str]]) -> None:
        """Log these lines after the lock is released: a log handler is user code and may use the database itself."""
        for level, line in lines:
            self._log.log(level, "%s", line)


_outages: dict[str, Outage] = {}


def outage_of(database: str) -> Outage:
    """The record of one database, shared by all stores of this process that have it open."""
    return _outages.setdefault(database, Outage())
