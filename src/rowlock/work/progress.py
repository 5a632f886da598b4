"""Progress reports: the latest of each job, written together at most four times a second, under the fence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.store import jobs
from rowlock.store.engine import Store
from rowlock.work.context import Report
from rowlock.work.errors import clean
from rowlock.work.heartbeat import Lease
from rowlock.work.running import Running

log = logging.getLogger("rowlock.worker")

PERIOD = 0.25
TEXT_LIMIT = 500


class ProgressBook:
    """Collects reports from handlers in any thread and writes them."""

    def __init__(self, store: Store, on_lost: Callable[[list[Lease]], None]) -> None:
        self._store, self._on_lost = store, on_lost
        self._latest: dict[str, tuple[str, str, int | None, str | None, str | None]] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task = self._loop.create_task(self._write_until_cancelled())

    def reporter(self, running: Running) -> Report:
        """The function behind `ctx.progress` of one attempt."""
        job_id, token = running.job.id, running.job.token

        def report(percent: int | None, phase: str | None, message: str | None) -> None:
            if running.ended or running.reason == "lost":
                return
            before = self._latest.get(job_id)
            shown = percent if percent is not None or before is None else before[2]
            texts = [None if text is None else clean(str(text), TEXT_LIMIT) for text in (phase, message)]
            self._latest[job_id] = (job_id, token, shown, texts[0], texts[1])
            if before is None:
                self._loop.call_soon_threadsafe(self._wake.set)

        return report

    async def _write_until_cancelled(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._latest = list(self._latest.values()), {}
            if not batch:
                continue
            try:
                held = await self._store.run(jobs.progress(batch))
                self._on_lost([(row[0], row[1]) for row in batch if row[0] not in held])
            except (StoreUnavailable, StorageFull) as error:
                self._store.outage.failed(f"progress (of {len(batch)} jobs, not written)", error)
            except Exception as error:  # the next report is a new chance; without this loop there would be none
                log.warning("progress of %d jobs was not written: %s", len(batch), error)
            await asyncio.sleep(PERIOD)

    async def flush(self, ids: list[str]) -> None:
        """Write what these jobs reported last, before they are settled."""
        batch = [self._latest.pop(job_id) for job_id in ids if job_id in self._latest] if self._latest else []
        if batch:
            await self._store.run(jobs.progress(batch))

    async def stop(self) -> None:
        """Stop writing; what is left is no longer wanted."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
