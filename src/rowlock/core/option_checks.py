"""Checks of options: each takes the value that a program gave and the option's name, and returns the value to store."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from rowlock.core.errors import InvalidArguments, seconds, whole
from rowlock.core.policy import Backoff
from rowlock.core.sources.policy import check_name
from rowlock.core.times import FIRST_MOMENT, LAST_MOMENT

MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_ATTEMPTS = 1_000_000
MAX_KEY_BYTES = 512
NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")  # half of a surrogate pair cannot be stored
TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def name(value: Any, what: str) -> str:
    """A name that can be stored and shown: 1–200 characters of UTF-8 without control characters."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidArguments(
            f"{what} must be a string of 1–200 characters of UTF-8 without control characters, not {value!r:.250}"
        )
    return value


OWN = "rowlock."  # the prefix of Rowlock's own tasks


def task_name(value: Any, what: str) -> str:
    """The name of a task that programs may register, enqueue or schedule. Only Rowlock enqueues its own tasks, because
    their handlers trust their arguments."""
    found = name(value, what)
    if found.startswith(OWN):
        raise InvalidArguments(f"{what} must not begin with {OWN!r}, which is for Rowlock's own tasks: {found!r:.250}")
    return found


def name_or_none(value: Any, what: str) -> str | None:
    return None if value is None else name(value, what)


def priority(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidArguments(
            f"{what} must be a whole number from {MIN_PRIORITY} (first) to {MAX_PRIORITY}, not {value!r}"
        )
    return value


def attempts(value: Any, what: str) -> int:
    return whole(value, what, 1, MAX_ATTEMPTS)


def backoff(value: Any, what: str) -> Backoff | None:
    if value is not None and not isinstance(value, Backoff):
        raise InvalidArguments(f"{what} must be fixed(…) or exponential(…), not {value!r}")
    return value


def seconds_or_none(value: Any, what: str) -> float | None:
    return None if value is None else seconds(value, what)


def source(value: Any, what: str) -> Any:
    """A source's name, or a task's function that derives it from the arguments of each job."""
    return value if value is None or callable(value) else check_name(value)


def as_given(value: Any, what: str) -> Any:
    return value


def on_lost(value: Any, what: str) -> str | None:
    if value not in (None, "retry", "dead"):
        raise InvalidArguments(f"{what} must be 'retry' or 'dead', not {value!r}")
    return "dead" if value == "dead" else None


def tags(value: Any, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(tag, str) for tag in value):
        raise InvalidArguments(f"{what} must be a list of strings, not {value!r}")
    return tuple(name(tag, "a tag") for tag in value)


def batch(value: Any, what: str) -> str | None:
    """The id of a batch, which is given as an object or by its id."""
    if value is None:
        return None
    try:
        return str(uuid.UUID(str(getattr(value, "id", value))))
    except ValueError:
        raise InvalidArguments(f"{what} must be a batch or its id, not {value!r:.100}") from None


def moment(value: Any, what: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidArguments(f"{what} must be a datetime with a time zone, not {value!r}")
    if not FIRST_MOMENT <= value < LAST_MOMENT:
        raise InvalidArguments(f"{what} must be in the years from 1970 to 2199, not {value.isoformat()}")
    return value.astimezone(UTC)


def unique(value: Any, what: str) -> str | None:
    if isinstance(value, timedelta):
        if seconds(value, what) <= 0:
            raise InvalidArguments(f"{what} must be a timedelta greater than zero, not {value!r}")
        return "window"
    if value not in (None, "until_done", "while_queued", "forever"):
        raise InvalidArguments(f"{what} must be 'until_done', 'while_queued', 'forever' or a timedelta, not {value!r}")
    return value  # type: ignore[no-any-return]


def traceparent(value: Any, what: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not TRACEPARENT.fullmatch(value)):
        raise InvalidArguments(f"{what} must be a W3C traceparent of 55 characters, not {value!r:.100}")
    return value


def key_text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\x00" in value:
        raise InvalidArguments(f"key must be a non-empty string without NUL characters, not {value!r:.100}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArguments(f"key must be text that UTF-8 can encode, not {value!r:.100}") from None
    if size > MAX_KEY_BYTES:
        raise InvalidArguments(f"key has {size} bytes, more than {MAX_KEY_BYTES}; use a hash of it instead")
    return value
