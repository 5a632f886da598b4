"""Log lines of jobs whose tasks keep them: collected from handlers in any thread, and written together. A child process
sends its lines to its parent (processes/to_parent.py)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rowlock.core.error_text import clean
from rowlock.core.errors import StoreError
from rowlock.core.job import Claimed
from rowlock.store import job_logs
from rowlock.store.engines.engine import Store
from rowlock.store.job_logs import MOST_TEXT, NewLine

log = logging.getLogger("rowlock.worker")

PERIOD = 0.5
MOST_WAITING = 10_000  # lines that wait to be written; with more, the oldest are lost
AT_ONCE = 500


class KeepsLines(Protocol):
    """What keeps the lines of jobs."""

    def keeper(self, job: Claimed) -> Callable[[str, str], None]: ...


class JobLines:
    """Lines that wait to be written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[float, str, int, str, str]] = deque(maxlen=MOST_WAITING)
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None

    def keeper(self, job: Claimed) -> Callable[[str, str], None]:
        """The function that keeps a line (level, message) of one attempt."""

        def keep(level: str, message: str) -> None:
            first = not self._waiting
            text = clean(message, MOST_TEXT)
            self._waiting.append((time.monotonic(), job.id, job.attempt, level, text))
            if first:
                self._loop.call_soon_threadsafe(self._arrived.set)

        return keep

    async def round(self) -> float:
        """Wait for lines and write them. Returns the delay before the next."""
        await self._arrived.wait()
        self._arrived.clear()
        # A stop of the worker cancels this round, but not the writing: the lines are not in the queue any more.
        self._writing = asyncio.ensure_future(self._write())
        await asyncio.shield(self._writing)
        return PERIOD

    async def flush(self) -> None:
        """Write what waits, after what is being written."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._write()

    async def _write(self) -> None:
        """Lines that cannot be written are lost: they must not hold up the jobs."""
        while self._waiting:
            now = time.monotonic()
            taken = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            lines = [NewLine(job_id, attempt, now - at, level, text) for at, job_id, attempt, level, text in taken]
            try:
                await self._store.run(job_logs.write(lines))
            except StoreError as error:
                log.warning("%d log lines of jobs were not written: %s", len(lines), error)
