"""New ids: UUIDv7, which sort by time and, within one process, by order of creation."""

from __future__ import annotations

import sys
import uuid

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils import uuid7


def new_id() -> str:
    return str(uuid7())


def new_token() -> str:
    """A new, unguessable lease token."""
    return str(uuid.uuid4())


def valid_id(text: str) -> str | None:
    """The canonical form of a job id, or None if the text isn't one."""
    try:
        return str(uuid.UUID(text))
    except (ValueError, AttributeError, TypeError):
        return None
