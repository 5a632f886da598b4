"""Times as rows have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, overload

# Shown for a time beyond Python's calendar, or for what is no time at all: reading one row must not fail for all.
# PostgreSQL's statements answer these for what lies beyond them (see queries.py).
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)


@overload
def moment(value: datetime | str) -> datetime: ...
@overload
def moment(value: datetime | str | None) -> datetime | None: ...
def moment(value: Any) -> datetime | None:
    """A time as either engine gives it; EARLIEST or LATEST for what is none."""
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return EARLIEST if value.startswith(("-", "0000")) else LATEST
        return at if at.tzinfo is not None else LATEST
    return EARLIEST if isinstance(value, (int, float)) and value < 0 else LATEST
