"""Writes outcomes in batches: the attempts that end while one batch is written are the next batch.

There is no timer, so an idle worker settles at once and a busy one in large batches. A job's lease is held, and
renewed, until its outcome is written. As back-pressure, the worker claims nothing while many outcomes are unwritten.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.core.policy import Transition, decide
from rowlock.core.states import Outcome, State
from rowlock.signals.events import Watcher
from rowlock.signals.logs import job_fields
from rowlock.store import batches
from rowlock.store.engine.store import Store
from rowlock.store.jobs import settle as settle_jobs
from rowlock.store.upkeep import bad_rows
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.classify import internal
from rowlock.worker.attempt.reports import ProgressBook
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer
from rowlock.worker.loops import Loops

KNOWN = 10_000  # batches of jobs that are remembered as started; marking one twice is harmless
log = logging.getLogger("rowlock.worker")
UNSTORABLE = "UNSTORABLE"
BATCH = 1000  # outcomes in one transaction, at most
SHORTEST_DELAY, LONGEST_DELAY = 0.1, 2.0  # backoff in seconds while the database accepts no outcomes
Batch = Sequence[tuple[LiveAttempt, Transition]]


class BatchMarks:
    """Records when batches start, and ends batches whose last job settled in its own transaction."""

    def __init__(self, store: Store, loops: Loops) -> None:
        self._store, self._loops = store, loops
        self._known: set[str] = set()
        self._fresh: set[str] = set()
        self._ending: set[str] = set()  # batches whose last job may have settled itself in its own transaction

    def started(self, batch_id: str) -> None:
        """A job of this batch has started. Batches that start in one turn of the event loop are written together."""
        if batch_id in self._known:
            return
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known.add(batch_id)
        if not self._fresh:
            self._loops.spawn(self._write())
        self._fresh.add(batch_id)

    async def _write(self) -> None:
        fresh, self._fresh = sorted(self._fresh), set()
        await self._store.run(batches.start(fresh))

    def settled_itself(self, batch_id: str) -> None:
        """A job of this batch was settled by its own transaction. If it was the last job, end the batch."""
        self._ending.add(batch_id)
        self._loops.spawn(self._end(batch_id))

    async def _end(self, batch_id: str) -> None:
        await batches.end_after_commit(self._store, {batch_id})
        self._ending.discard(batch_id)

    async def finish(self) -> None:
        """End the complete batches of jobs before the worker stops: if it is the last one, no other will do it."""
        await batches.end_after_commit(self._store, set(self._ending))


async def write_instead(
    store: Store, attempt: LiveAttempt, transition: Transition, refused: Exception
) -> Transition | None:
    """What to write in a later round instead of an outcome that the database refused: a failure UNSTORABLE with a fixed
    text. If that was refused, the same failure without the job's follow-up. If that was refused as well, set the job
    aside for good and return None."""
    job = attempt.job
    with suppress(Exception):
        log.error("the database refused the outcome of job %s: %s", job.id, refused, extra=job_fields(job))
    if (instead := unstorable(job, transition)) is not None:
        return instead
    if job.on_dead is not None:
        log.error("job %s ends without its follow-up", job.id, extra=job_fields(job))
        attempt.job = job._replace(on_success=None, on_dead=None)
        return transition
    try:
        await bad_rows.put(store, job.id, "settle", refused, again=None)
    except bad_rows.OUTAGE:
        return transition
    return None


def unstorable(job: Claimed, refused: Transition) -> Transition | None:
    """An UNSTORABLE failure to replace a refused transition; None if it was one already, or if `decide` fails."""
    if refused.error_code == UNSTORABLE:
        return None
    permanent = refused.outcome is Outcome.SUCCEEDED
    end = Failed(UNSTORABLE, "the outcome of this attempt could not be stored", permanent=permanent)
    try:
        return decide(job, end, random.random())
    except Exception:  # the job's row holds values that `decide` cannot handle
        return None


def undecided(job: Claimed, broken: Exception) -> Transition:
    """The transition to write if `decide` raised: an internal failure with the default backoff; dead if `decide` raises
    again."""
    failed = internal(job, "the job's next state could not be decided", broken)
    try:
        return decide(job._replace(backoff=None), failed, random.random())
    except Exception:
        return Transition(State.DEAD, Outcome.FAILED, error_code=failed.code, error_message=failed.message)


class Settler:
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
        self._delay = 0.0  # current backoff; 0 after a success

    @property
    def backlog(self) -> int:
        """Outcomes that are not yet committed."""
        return len(self._pending) + self._writing

    def settle(self, attempt: LiveAttempt, end: AttemptEnd) -> None:
        """Decide the job's next state and queue it for the next batch. Never raises."""
        try:
            transition = decide(attempt.job, end, random.random())
        except Exception as broken:
            transition = undecided(attempt.job, broken)
        self._pending.append((attempt, transition))
        self._arrived.set()

    async def round(self) -> float:
        """Wait for outcomes and write a batch of them, in one transaction or, if the database refuses that, in halves.
        Returns the delay before the next round."""
        await self._arrived.wait()
        self._arrived.clear()
        batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
        self._writing, began = len(batch), time.monotonic()
        try:
            try:
                await self._progress.flush(batch)
                outcomes = [(attempt.job, transition) for attempt, transition in batch]
                await settle_jobs.settle(self._store, outcomes, self._keep, tell=partial(self._settled, batch))
            except bad_rows.OUTAGE:
                raise
            except Exception as error:
                await self._write_halves(batch, error)
            self._watcher.written(len(batch), began)
            self._claimer.settled()
            self._delay = 0.0
        except Exception as error:
            # Try again: the leases still hold, and settling an outcome twice is harmless (the answer is `duplicate`).
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
                log.warning("%d outcomes could not be written yet: %r", len(batch), error, exc_info=True)

    async def _write_halves(self, batch: Batch, refused: Exception) -> None:
        """Bisect a refused batch. An outcome that is refused on its own is replaced, and the replacement is written in
        a later round."""
        with suppress(Exception):
            log.error("the database refused a batch of %d outcomes (%s); writing it in halves", len(batch), refused)
        _, alone = await bad_rows.in_halves(batch, self._write_part)
        for (attempt, transition), error in alone:
            if (instead := await write_instead(self._store, attempt, transition, error)) is not None:
                self._pending.append((attempt, instead))
            else:
                self._settled([(attempt, transition)], {attempt.job.id: "lost"})

    async def _write_part(self, part: Batch) -> None:
        outcomes = [(attempt.job, transition) for attempt, transition in part]
        try:
            await settle_jobs.settle(self._store, outcomes, self._keep, tell=partial(self._settled, part))
        except bad_rows.OUTAGE:
            self._pending += part

    def _settled(self, batch: Batch, answers: Mapping[str, settle_jobs.Answer]) -> None:
        """These outcomes are written, so the worker forgets their attempts. An error here must not cause a second
        write."""
        try:
            self._slots.settled(batch, answers)
        except Exception:
            with suppress(Exception):
                log.exception("%d jobs are settled, but the worker failed to record that", len(batch))

    async def drain(self, timeout: float) -> bool:
        """Wait until all outcomes are written; returns False on a timeout."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self.backlog and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        return not self.backlog
