"""Writes progress reports together, at most four times a second, under the fence."""

from __future__ import annotations

import logging

from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.worker.attempt.progress import ProgressBook
from rowlock.worker.attempt.stopping import Stopping

log = logging.getLogger("rowlock.worker")

PERIOD = 0.25  # seconds between two writes


class ProgressWriter:
    """Writes a book's reports, and stops the attempts that turn out to have lost their leases."""

    def __init__(self, book: ProgressBook, stopping: Stopping) -> None:
        self._book, self._stopping = book, stopping

    async def round(self) -> float:
        """Wait for reports and write them. Returns the delay before the next."""
        await self._book.reported.wait()
        self._book.reported.clear()
        batch = self._book.take()
        if not batch:
            return 0.0
        try:
            self._stopping.lost(await self._book.write(batch))
        except (StoreUnavailable, StorageFull) as error:
            self._book.store.outage.failed(f"progress (of {len(batch)} jobs, not written)", error)
        except Exception as error:  # this loop goes on: the next report may be written
            log.warning("progress of %d jobs was not written: %s", len(batch), error)
        return PERIOD
