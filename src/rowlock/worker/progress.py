"""Progress reports: the latest of each job, written together at most four times a second, under the fence."""

from __future__ import annotations

import asyncio
import logging

from rowlock.client.context import Report
from rowlock.core.error_text import clean
from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.store import leases
from rowlock.store.engines.engine import Store
from rowlock.worker.running import Running
from rowlock.worker.stopping import Stopping

log = logging.getLogger("rowlock.worker")

PERIOD = 0.25
TEXT_LIMIT = 500
Latest = tuple[Running, int | None, str | None, str | None]  # percent, phase, message


class ProgressBook:
    """Collects the reports of handlers in any thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._latest: dict[str, Latest] = {}
        self._loop = asyncio.get_running_loop()
        self.reported = asyncio.Event()

    def reporter(self, attempt: Running) -> Report:
        """The function behind `ctx.progress` of one attempt."""
        job_id = attempt.job.id

        def report(percent: int | None, phase: str | None, message: str | None) -> None:
            if attempt.ended or attempt.reason == "lost":
                return
            before = self._latest.get(job_id)
            shown = percent if percent is not None or before is None else before[1]
            texts = [None if text is None else clean(str(text), TEXT_LIMIT) for text in (phase, message)]
            self._latest[job_id] = (attempt, shown, texts[0], texts[1])
            if before is None:
                self._loop.call_soon_threadsafe(self.reported.set)

        return report

    def take(self) -> list[Latest]:
        """The reports since the last call."""
        batch, self._latest = list(self._latest.values()), {}
        return batch

    async def flush(self, ids: list[str]) -> None:
        """Write the last reports of these jobs, before they are settled."""
        batch = [self._latest.pop(job_id) for job_id in ids if job_id in self._latest] if self._latest else []
        if batch:
            await self.write(batch)

    async def write(self, batch: list[Latest]) -> list[Running]:
        """Write these reports under the fence. Answers the attempts that have lost their leases."""
        rows = [(attempt.job.id, attempt.token, percent, phase, text) for attempt, percent, phase, text in batch]
        held = await self.store.run(leases.progress(rows))
        return [latest[0] for latest in batch if latest[0].job.id not in held]


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
