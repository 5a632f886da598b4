"""Moments as people type them: an ISO time with its zone, or a duration before now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rowlock.core.durations import parse_duration
from rowlock.core.errors import InvalidArguments

# Outside of these there are no jobs, and at the edge of Python's calendar a time cannot be converted to another zone.
FIRST_MOMENT, LAST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_LONGEST = (LAST_MOMENT - FIRST_MOMENT).total_seconds()


def parse_moment(text: str, expected: str = "a time such as 2026-03-01T09:00:00+01:00") -> datetime:
    """An ISO time with its zone; InvalidArguments for any other text. A plus sign that a URL turned into a space is
    read as a plus sign."""
    found = _iso(text.strip()) or _iso(text.strip().replace(" ", "+"))
    if found is None:
        raise InvalidArguments(f"{text!r:.100}: expected {expected}")
    if found.tzinfo is None:
        raise InvalidArguments(f"{text!r} has no time zone: write {text}Z for UTC, or {text}+01:00")
    return found


def parse_moment_or_ago(text: str) -> datetime:
    """An ISO time with its zone, or a duration before now such as 2h; moved into the years 1970 to 2199."""
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
