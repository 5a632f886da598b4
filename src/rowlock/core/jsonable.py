"""Converts records to JSON, for the command line and the operator API."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a mapping, a dataclass or a named tuple, by name, with unchanged values."""
    if isinstance(record, Mapping):
        return dict(record)
    if isinstance(record, tuple):
        return record._asdict()  # type: ignore[attr-defined, no-any-return]
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def utc(at: datetime) -> str:
    """A time in UTC, as ISO 8601 with a Z."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def jsonable(value: Any, time: Callable[[datetime], str] = utc, name: Callable[[str], str] = str) -> Any:
    """A value that `json` can write. `time` formats times, and `name` the names of a record's fields; the keys of a
    mapping stay as they are."""
    if isinstance(value, datetime):
        return time(value)
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): jsonable(inner, time, name) for key, inner in value.items()}
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return {name(key): jsonable(inner, time, name) for key, inner in fields_of(value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(inner, time, name) for inner in value]
    return str(value)
