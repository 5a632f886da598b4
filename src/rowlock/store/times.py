"""Times as rows have them."""

from __future__ import annotations

from datetime import datetime
from typing import overload


@overload
def moment(value: datetime | str) -> datetime: ...
@overload
def moment(value: datetime | str | None) -> datetime | None: ...
def moment(value: datetime | str | None) -> datetime | None:
    """A time as either engine gives it."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value
