"""JSON as rows have it. Another program may have written it, and reading one row must not fail for all."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: Any) -> tuple[Any, bool]:
    """The value, and True; what is no JSON, or JSON that Python does not read (a number of 5,000 digits), as it is."""
    try:
        return json.loads(text), True
    except (ValueError, TypeError, RecursionError):
        return text, False


def names(text: Any) -> tuple[str, ...] | None:
    """A list of names; None when it is none."""
    found, read = parsed(text or "[]")
    return tuple(found) if read and isinstance(found, list) and all(isinstance(one, str) for one in found) else None
