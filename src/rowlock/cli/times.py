"""Times as people type them: `90`, `30s`, `5m`, `2h`, `1d`, or ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rowlock.core.errors import InvalidArguments

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")


def duration(text: str, option: str) -> float:
    """Seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidArguments(f"{option} {text!r}: expected seconds or a time such as 30s, 5m, 2h or 1d")
    return float(match[1]) * UNITS[match[2] or "s"]


def moment(text: str, option: str) -> datetime:
    """A moment, with its time zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidArguments(f"{option} {text!r}: expected a time such as 2026-03-01T09:00:00+01:00") from None
    if found.tzinfo is None:
        raise InvalidArguments(f"{option} {text!r}: which time zone? Write {text}Z for UTC, or {text}+01:00")
    return found


def since(text: str, option: str) -> datetime:
    """A moment, or how long ago it was."""
    if _DURATION.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(seconds=duration(text, option))
    return moment(text, option)
