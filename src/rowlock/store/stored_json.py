"""JSON from rows. Another program may have written it, and one unreadable value must not fail a whole list."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: Any) -> tuple[Any, bool]:
    """The parsed value and True; or the text itself and False if Python cannot read it (a number of 5,000 digits)."""
    try:
        return json.loads(text), True
    except (ValueError, TypeError, RecursionError):
        return text, False


def names(text: Any) -> tuple[str, ...] | None:
    """A list of names; None when it is none."""
    found, read = parsed(text or "[]")
    return tuple(found) if read and isinstance(found, list) and all(isinstance(one, str) for one in found) else None
