"""The transaction and the job that the running code is part of: its enqueues join the one, and are children of the
other.

A transaction is a block of `app.transaction()`, or that of an attempt (attempt_transaction.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from rowlock.core.current_job import running_job
from rowlock.store.engine.store import Session
from rowlock.store.engine.transactions import Block

LeaseKey = tuple[str, str]  # a job's id and the token of its lease


class JoinableTransaction:
    """A transaction that enqueues and reads in this context join while it is open."""

    session: Block | None = None  # while it is open
    outer: JoinableTransaction | None = None  # the one that this context was in before

    def __init__(self, app: Any) -> None:
        self.app = app

    @property
    def lease(self) -> LeaseKey | None:
        """The lease of the attempt whose transaction this is, if it is an attempt's."""
        return None

    def joinable(self) -> Session | None:
        """The session to join, if the transaction is open."""
        return self.session


# Set anew for each attempt and each block of `app.transaction()`. Tasks that are started inside have a copy, but of the
# reference alone: they see what is opened and closed after their start.
entered: ContextVar[JoinableTransaction | None] = ContextVar("rowlock_transaction", default=None)


def joined(app: Any) -> Session | None:
    """The open transaction of `app` in this context, or None. A task that outlives the transaction has none."""
    if entered.get() is None:  # most enqueues are not in a transaction
        return None
    around = nearest(app)
    return around.joinable() if around is not None else None


def joined_lease(app: Any) -> LeaseKey | None:
    """The lease of the attempt whose transaction `joined` returns, or None."""
    around = nearest(app)
    return around.lease if around is not None else None


def parent_in(app: Any) -> str | None:
    """The id of the job of `app` whose handler runs here."""
    return None if (job := running_job(app)) is None else job.id


def leave() -> None:
    """Forget the transaction that this asyncio task inherited from the code that started it."""
    if entered.get() is not None:
        entered.set(None)


def nearest(app: Any) -> JoinableTransaction | None:
    """The innermost open transaction of `app` in this context, or None."""
    around = entered.get()
    while around is not None and (around.app is not app or around.joinable() is None):
        around = around.outer
    return around


@asynccontextmanager
async def joining(app: Any, session: Block) -> AsyncIterator[None]:
    """A block whose enqueues join `session`."""
    around = JoinableTransaction(app)
    around.session, around.outer = session, entered.get()
    entered.set(around)
    try:
        yield
    finally:
        around.session = None
        entered.set(around.outer)
