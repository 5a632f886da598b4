"""Who runs this command, for the audit."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.audit import Actor

T = TypeVar("T")


def actor() -> Actor:
    """The user of this machine."""
    from rowlock.store.audit import Actor

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = "?"
    return Actor(f"{user}@{socket.gethostname()}", "cli")


async def audited(app: Rowlock, work: Awaitable[T], action: str, target: str, **details: Any) -> T:
    """Run the work and write its entry in the audit; returns what the work returned."""
    from rowlock.store import audit

    answer = await work
    await app.perform(audit.write_alone(actor(), action, target, details))
    return answer
