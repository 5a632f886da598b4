"""Time as a parameter. In production the database's clock is used and this is None; tests pass a FakeClock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """A clock that moves only when you move it. Stores that are given one use it instead of the database's."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The present moment, in UTC."""
        return self._now

    def move(self, by: float | timedelta) -> datetime:
        """Go forward (or back) by seconds or a timedelta; returns the new present."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self._now
