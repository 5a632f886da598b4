"""Errors as text that any database takes: no NUL, no lone surrogate, at most 8 KiB, most telling part first."""

from __future__ import annotations

import traceback

from rowlock.core.errors import Permanent, Retry, SourceError

LIMIT = 8 * 1024
CODE_LIMIT = 100


def clean(text: str, limit: int = LIMIT) -> str:
    """Storable text of at most `limit` bytes."""
    text = text[: limit * 2].replace("\x00", "\\x00")
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[: limit - 20].decode("utf-8", "ignore") + " …(cut)"


def describe(error: BaseException) -> str:
    """The message (the code says which exception it was) and where it was raised, unless it was raised on purpose: then
    the message says it all. Never raises, whatever the exception's own `__str__` does."""
    try:
        head = str(error) or type(error).__name__
    except Exception as broken:
        head = f"<its message cannot be shown: {type(broken).__name__}>"
    if isinstance(error, (Permanent, Retry, SourceError)):
        return clean(head)
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return clean(clean(head, LIMIT - 2048) + where)
