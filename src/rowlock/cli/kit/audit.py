"""Who runs this command, for the audit."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable
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


async def audited(
    app: Rowlock, change: Awaitable[T], action: str, target: str | Callable[[T], str], **details: Any
) -> T:
    """Make a change and write it into the audit: both, or neither. `target` is what was changed, or a function that
    finds it in the answer of the change; if it finds nothing, nothing was changed. Returns that answer."""
    from rowlock.store import audit

    async with app.transaction() as transaction:
        answer = await change
        if what := target(answer) if callable(target) else target:
            await transaction.run(audit.write_alone(actor(), action, what, details))
    return answer
