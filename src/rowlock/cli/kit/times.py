"""Times on the command line: `90` (seconds), `30s`, `5m`, `2h`, `1d`, or ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rowlock.core.durations import parse_duration
from rowlock.core.errors import InvalidArguments


def duration(text: str, option: str) -> float:
    """A duration, in seconds."""
    found = parse_duration(text)
    if found is None:
        raise InvalidArguments(f"{option} {text!r}: expected seconds or a time such as 30s, 5m, 2h or 1d")
    return found


def moment(text: str, option: str, expected: str = "a time such as 2026-03-01T09:00:00+01:00") -> datetime:
    """A moment, with its time zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidArguments(f"{option} {text!r}: expected {expected}") from None
    if found.tzinfo is None:
        raise InvalidArguments(f"{option} {text!r} has no time zone: write {text}Z for UTC, or {text}+01:00")
    return found


def since(text: str, option: str) -> datetime:
    """A moment, given as an ISO time or as a duration before now."""
    found = parse_duration(text)
    if found is None:
        return moment(text, option, "a time ago such as 2h, or a moment such as 2026-03-01T09:00:00Z")
    return datetime.now(UTC) - timedelta(seconds=found)
