"""The job that the running code belongs to: log lines name it, and jobs that it enqueues are its children."""

from __future__ import annotations

from contextvars import ContextVar

from rowlock.core.job import Claimed

# Set for each attempt, with the app whose worker runs it. Asyncio tasks and threads that a handler starts inherit it.
running: ContextVar[tuple[object, Claimed] | None] = ContextVar("rowlock_running", default=None)


def running_job(app: object = None) -> Claimed | None:
    """The job that runs here, or None; with `app`, only if it is a job of that app."""
    found = running.get()
    return found[1] if found is not None and (app is None or found[0] is app) else None
