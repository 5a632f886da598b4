"""An outage of Redis, told in a few lines of the log and without secrets."""

from __future__ import annotations

import logging
import re
import time

log = logging.getLogger("rowlock.bridge")

MINUTE = 60.0


def without_secrets(text: str) -> str:
    """A text in which URLs have no user and password."""
    return re.sub(r"//[^@\s]*@", "//***@", text)


class Trouble:
    """Logs an outage of Redis: when it begins, once a minute while it lasts, and when it is over."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._began: float | None = None
        self._told = 0.0
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Note that Redis could not be used; returns the seconds to wait before the next try."""
        now = time.monotonic()
        if self._began is None or now - self._told >= MINUTE:
            self._told = now
            said = without_secrets(f"{type(error).__name__}: {error}")
            log.warning("Redis at %s cannot be used: %s; trying again until it works", self._place, said)
        self._began = self._began or now
        self._failures += 1
        return float(min(5.0, 0.1 * 2 ** min(self._failures, 6)))

    def worked(self) -> None:
        """Note that Redis could be used."""
        if self._began is not None:
            log.warning("Redis at %s can be used again after %.1f s", self._place, time.monotonic() - self._began)
        self._began, self._failures = None, 0
