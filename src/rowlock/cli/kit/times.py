"""Times on the command line: `90` (seconds), `30s`, `5m`, `2h`, `1d`, or ISO 8601."""

from __future__ import annotations

from datetime import datetime

from rowlock.core.durations import parse_duration
from rowlock.core.errors import InvalidArguments
from rowlock.core.moments import parse_moment


def duration(text: str, option: str) -> float:
    """A duration, in seconds."""
    found = parse_duration(text)
    if found is None:
        raise InvalidArguments(f"{option} {text!r}: expected seconds or a time such as 30s, 5m, 2h or 1d")
    return found


def moment(text: str, option: str) -> datetime:
    """A moment, with its time zone."""
    try:
        return parse_moment(text)
    except InvalidArguments as error:
        raise InvalidArguments(f"{option} {error}") from None
