"""Turn rows into records: each field is read from the column of its name, according to its declared type.

Another program may have written a row, so a value that can't be read must not make a whole list fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints, overload

from rowlock.core.states import State
from rowlock.store.engine.operation import Row

T = TypeVar("T")

# Shown instead of a time beyond Python's calendar, or of a value that isn't a time. On PostgreSQL the statements
# themselves return these limits (the token {time} in statements.py).
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)


@overload
def moment(value: datetime | str) -> datetime: ...
@overload
def moment(value: datetime | str | None) -> datetime | None: ...
def moment(value: Any) -> datetime | None:
    """A time from either engine (PostgreSQL has datetimes, SQLite ISO text) as a datetime. EARLIEST or LATEST if the
    value isn't a time."""
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return EARLIEST if value.startswith(("-", "0000")) else LATEST
        return at if at.tzinfo is not None else LATEST
    return EARLIEST if isinstance(value, (int, float)) and value < 0 else LATEST


def parsed(text: Any) -> tuple[Any, bool]:
    """The value of a JSON text and True; or the text and False if Python can't read it (a number of 5,000 digits)."""
    try:
        return json.loads(text), True
    except (ValueError, TypeError, RecursionError):
        return text, False


def names(text: Any) -> tuple[str, ...] | None:
    """The names in a JSON list; None if the text isn't such a list."""
    found, read = parsed(text or "[]")
    return tuple(found) if read and isinstance(found, list) and all(isinstance(one, str) for one in found) else None


def record(kind: type[T], row: Row, **given: Any) -> T:
    """The row as a `kind`. `given` holds fields that aren't columns of the row, or that override them."""
    readers = _readers(kind)  # type: ignore[arg-type]  # to mypy a class is not hashable
    return kind(**{name: read(getattr(row, name)) for name, read in readers if name not in given}, **given)


@cache
def _readers(kind: type[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """The fields of a record, each with the function that reads its value."""
    return [(name, _READERS.get(_without_none(hint), _as_stored)) for name, hint in get_type_hints(kind).items()]


def _without_none(hint: Any) -> Any:
    """`T` of `T | None`."""
    first, *rest = get_args(hint) or (hint,)
    return first if rest == [NoneType] else hint


def _as_stored(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else int(value)


def _number(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else float(value)


# SQLite returns times as text, booleans as numbers, and possibly text instead of a number; PostgreSQL returns sums as
# decimals.
_READERS: dict[Any, Callable[[Any], Any]] = {
    datetime: moment,
    bool: bool,
    int: _whole,
    float: _number,
    State: State,
    tuple[str, ...]: lambda value: names(value) or (),
}
