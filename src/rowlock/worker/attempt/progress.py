"""Progress reports of handlers: collected from any thread, and written together at most four times a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rowlock.client.context import Report
from rowlock.core.error_text import clean
from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.policy import Transition
from rowlock.store.engine.store import Store
from rowlock.store.jobs import leases
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping

log = logging.getLogger("rowlock.worker")

TEXT_LIMIT = 500
PERIOD = 0.25  # seconds between two writes
Latest = tuple[LiveAttempt, int | None, str | None, str | None]  # percent, phase, message


class ProgressBook:
    """Collects the reports of handlers in any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest: dict[str, Latest] = {}
        self._loop = asyncio.get_running_loop()
        self._reported = asyncio.Event()

    def reporter(self, attempt: LiveAttempt) -> Report:
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
                self._loop.call_soon_threadsafe(self._reported.set)

        return report

    async def flush(self, ended: Sequence[tuple[LiveAttempt, Transition]]) -> None:
        """Write the last reports of these attempts, before their outcomes are written."""
        if self._latest:
            ids = [attempt.job.id for attempt, _ in ended]
            if batch := [self._latest.pop(job_id) for job_id in ids if job_id in self._latest]:
                await self._write(batch)

    async def _write(self, batch: list[Latest]) -> list[LiveAttempt]:
        """Write these reports under the fence. Returns the attempts that have lost their leases."""
        rows = [(attempt.job.id, attempt.token, percent, phase, text) for attempt, percent, phase, text in batch]
        held = await self._store.run(leases.progress(rows))
        return [latest[0] for latest in batch if latest[0].job.id not in held]

    async def round(self, stopping: Stopping) -> float:
        """Wait for reports and write them; stop the attempts that turn out to have lost their leases. Returns the delay
        before the next round."""
        await self._reported.wait()
        self._reported.clear()
        batch, self._latest = list(self._latest.values()), {}
        if not batch:
            return 0.0
        try:
            stopping.lost(await self._write(batch))
        except (StoreUnavailable, StorageFull) as error:
            self._store.outage.failed(f"progress (of {len(batch)} jobs, not written)", error)
        except Exception as error:  # this loop goes on: the next report may be written
            log.warning("progress of %d jobs was not written: %s", len(batch), error)
        return PERIOD
