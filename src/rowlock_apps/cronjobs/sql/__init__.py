"""Named SQL: `worker.sql` has a name, a sentence and a statement for each. The same text runs on both engines."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("worker.sql")


def query(name: str) -> str:
    return _queries()[name]


@cache
def _queries() -> dict[str, str]:
    parts = re.split(r"^-- name: (\w+)\n", FILE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def moment(value: datetime | str) -> datetime:
    """A time as either engine gives it: on SQLite it is text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
