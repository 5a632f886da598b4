"""Times as people type them: durations (`90`, `30s`, `5m`, `2h`, `1d`) and ISO times with a zone. Also `FakeClock`, the
clock of tests; in production, the database is the clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from rowlock.core.errors import InvalidArguments

# No job has a time outside this range. At the edges of Python's calendar, times can't be converted to other zones.
FIRST_MOMENT, LAST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_LONGEST = (LAST_MOMENT - FIRST_MOMENT).total_seconds()
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_WORDS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")


def parse_moment(text: str, expected: str = "a time such as 2026-03-01T09:00:00+01:00") -> datetime:
    """An ISO time with its zone; InvalidArguments for any other text. A space in place of the plus sign is accepted,
    because URLs turn one into the other."""
    found = _iso(text.strip()) or _iso(text.strip().replace(" ", "+"))
    if found is None:
        raise InvalidArguments(f"{text!r:.100}: expected {expected}")
    if found.tzinfo is None:
        raise InvalidArguments(f"{text!r} has no time zone: write {text}Z for UTC, or {text}+01:00")
    return found


def parse_moment_or_ago(text: str) -> datetime:
    """An ISO time with its zone, or a duration before now such as 2h; clamped to the years 1970 to 2199."""
    ago = parse_duration(text)
    if ago is None:
        found = parse_moment(text, "a time ago such as 2h, or a moment such as 2026-03-01T09:00:00Z")
    else:
        found = datetime.now(UTC) - timedelta(seconds=min(ago, _LONGEST))
    return min(max(FIRST_MOMENT, found), LAST_MOMENT)


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def parse_duration(text: str) -> float | None:
    """A duration in seconds; None if the text isn't one, so that the caller can word the error."""
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else float(match[1]) * UNITS[match[2] or "s"]


def spell(seconds: float) -> str:
    """A duration for people, in its two largest units: 250 ms, 9.4 s, 45 s, 5 min 12 s, 2 h 10 min, 3 d 4 h."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.2g} s"
    whole = round(seconds)
    for (size, unit), (small, next_unit) in pairwise(_WORDS):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {next_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


class FakeClock:
    """A clock that moves only when you move it. A store that gets one uses it instead of the database's clock."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The current time, in UTC."""
        return self._now

    def move(self, by: float | timedelta) -> datetime:
        """Move forward (or back) by seconds or a timedelta; returns the new time."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self._now
