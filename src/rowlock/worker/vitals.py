"""The health of a worker, as its metrics and probes read it from their own thread."""

from __future__ import annotations

from collections.abc import Callable

from rowlock.worker.heartbeat import Heart
from rowlock.worker.slots import Slots

BLOCKED_SECONDS = 10.0  # an event loop that has not turned for this long is taken for dead


class Vitals:
    """Slots, heartbeat and event loop of one worker."""

    def __init__(self, slots: Slots, heart: Heart, lease: float, away: Callable[[], str | None]) -> None:
        self._slots, self._heart, self._lease, self._away = slots, heart, lease, away

    def slots(self) -> tuple[int, int]:
        """Busy slots and free ones."""
        busy = min(self._slots.occupied, self._slots.size)
        return busy, self._slots.size - busy

    def heartbeat_age(self) -> float:
        """Seconds since a heartbeat reached the database."""
        return self._heart.beat_age

    def loop_lag(self) -> float:
        """How late the event loop runs its timers."""
        return self._heart.loop_lag

    def live(self) -> str | None:
        """What is wrong with the process; None if nothing is."""
        if (lag := self._heart.blocked_for) > BLOCKED_SECONDS:
            return f"the event loop has not turned for {lag:.0f} s"
        return None if self._heart.alive else "the thread of the heartbeats has ended"

    def ready(self) -> str | None:
        """Why the worker takes no jobs; None if it does."""
        if (away := self._away()) is not None:
            return away
        if (age := self.heartbeat_age()) > self._lease:
            return f"the database has not been reached for {age:.0f} s"
        return self.live()
