"""How late an event loop runs its timers. Other threads read it, also while a handler blocks the loop."""

from __future__ import annotations

import asyncio
import time

TICK_SECONDS = 0.25  # between two looks at the time in the event loop
WINDOW_SECONDS = 15.0  # the longest lag is remembered for one to two windows


class LoopLag:
    """Watches one event loop by a timer that starts itself again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticked = self._window = time.monotonic()
        self._longest = self._longest_before = 0.0  # lags in this window and in the one before
        self._stopped = False

    def start(self) -> None:
        """Begin to watch. Called in the loop's own thread."""
        self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        late, self._ticked = now - self._ticked - TICK_SECONDS, now
        if now - self._window > WINDOW_SECONDS:
            self._longest, self._longest_before, self._window = 0.0, self._longest, now
        self._longest = max(self._longest, late)
        if not self._stopped:
            self._loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        """Watch no more."""
        self._stopped = True

    @property
    def still_for(self) -> float:
        """Seconds since the loop turned last."""
        return time.monotonic() - self._ticked

    @property
    def blocked_for(self) -> float:
        """Seconds for which the loop has not turned, beyond what is usual."""
        return max(0.0, self.still_for - TICK_SECONDS)

    @property
    def longest(self) -> float:
        """The longest lag of the last seconds, the one that is under way included."""
        return max(self._longest, self._longest_before, self.blocked_for)
