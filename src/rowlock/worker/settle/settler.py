"""Writes outcomes in batches: the attempts that end while one batch is written are the next batch.

There is no timer, so an idle worker settles at once and a busy one in large batches. A job's lease is held, and
renewed, until its outcome is written. While many outcomes wait, the plan claims no more jobs.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.outcome import AttemptEnd
from rowlock.core.policy import Transition, decide
from rowlock.signals.events import Watcher
from rowlock.store.engine.store import Store
from rowlock.store.jobs import settle as settle_jobs
from rowlock.store.upkeep import bad_rows
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.progress import ProgressBook
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.settle.fallback import undecided, write_alone

if TYPE_CHECKING:
    from rowlock.worker.claim.claimer import Claimer

log = logging.getLogger("rowlock.worker")

BATCH = 1000  # outcomes in one transaction, at most
SHORTEST_DELAY, LONGEST_DELAY = 0.1, 2.0  # seconds between tries while the database takes no outcomes
Batch = Sequence[tuple[LiveAttempt, Transition]]


class Settler:
    """The one writer of outcomes in a worker."""

    def __init__(
        self,
        store: Store,
        keep: settle_jobs.Keep,
        slots: Slots,
        claimer: Claimer,
        progress: ProgressBook,
        watcher: Watcher,
    ) -> None:
        self._store, self._keep = store, keep
        self._slots, self._claimer, self._progress, self._watcher = slots, claimer, progress, watcher
        self._pending: list[tuple[LiveAttempt, Transition]] = []
        self._arrived = asyncio.Event()
        self._writing = 0
        self._delay = 0.0  # after the last failure; 0 after a success

    @property
    def backlog(self) -> int:
        """Outcomes that are not yet committed."""
        return len(self._pending) + self._writing

    def settle(self, attempt: LiveAttempt, end: AttemptEnd) -> None:
        """Decide what follows the end of an attempt, and put that in the next batch. Never raises."""
        try:
            transition = decide(attempt.job, end, random.random())
        except Exception as broken:
            transition = undecided(attempt.job, broken)
        self._pending.append((attempt, transition))
        self._arrived.set()

    async def round(self) -> float:
        """Write the next batch, once there is one: in one transaction or, if the database refuses that, each outcome
        by itself. Returns the delay before the next round."""
        await self._arrived.wait()
        self._arrived.clear()
        batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
        self._writing, began = len(batch), time.monotonic()
        try:
            try:
                await self._progress.flush(batch)
                settlements = [(attempt.job, transition) for attempt, transition in batch]
                await settle_jobs.settle(self._store, settlements, self._keep, tell=partial(self._tell, batch))
            except bad_rows.OUTAGE:
                raise
            except Exception as error:
                await self._write_each(batch, error)
            self._watcher.written(len(batch), began)
            self._claimer.settled()
            self._delay = 0.0
        except Exception as error:
            # Nothing is lost: the leases still hold, and an outcome that was written already is answered `duplicate`.
            self._pending = batch + self._pending
            self._delay = min(LONGEST_DELAY, self._delay * 2 or SHORTEST_DELAY)
            self._report(batch, error)
        finally:
            self._writing = 0
        if self._pending:
            self._arrived.set()
        return self._delay * random.uniform(0.5, 1.0)

    def _report(self, batch: Batch, error: Exception) -> None:
        with suppress(Exception):  # a logging filter is user code
            if isinstance(error, (StoreUnavailable, StorageFull)):
                self._store.outage.failed(f"settler ({len(batch)} outcomes wait)", error)
            else:
                log.warning("%d outcomes wait for the database: %r", len(batch), error, exc_info=True)

    async def _write_each(self, batch: Batch, refused: Exception) -> None:
        """Write the outcomes of a refused batch one by one. An outcome that is refused again is replaced, and the
        replacement is written in a later round."""
        with suppress(Exception):
            log.error("a batch of %d outcomes was refused (%s); writing them one by one", len(batch), refused)
        for attempt, transition in batch:
            tell = partial(self._tell, [(attempt, transition)])
            if (instead := await write_alone(self._store, attempt, transition, self._keep, tell)) is not None:
                self._pending.append((attempt, instead))

    def _tell(self, batch: Batch, answers: Mapping[str, settle_jobs.Answer]) -> None:
        """Outcomes are written: let go of their jobs. An error in there must not make the settler write them again."""
        try:
            self._slots.settled(batch, answers)
        except Exception:
            with suppress(Exception):
                log.exception("%d jobs are settled; what follows in their worker failed", len(batch))

    async def drain(self, timeout: float) -> bool:
        """Wait until everything handed over is written; False when time is up."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self.backlog and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        return not self.backlog
