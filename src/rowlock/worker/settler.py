"""Writes outcomes in batches: whatever ended while the last batch was being written goes in the next one.

No timer is involved, so an idle worker settles at once and a busy one in large batches. Leases stay held, and are
beaten, until the answer is there; a full buffer stops claiming.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from rowlock.core.errors import StorageFull, StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.core.policy import Transition, decide
from rowlock.core.states import Outcome, State
from rowlock.signals.job_fields import job_fields
from rowlock.store import aside, jobs
from rowlock.store.engines.engine import Store
from rowlock.worker.classify import internal
from rowlock.worker.running import Running

log = logging.getLogger("rowlock.worker")

BATCH = 1000
UNSTORABLE = "UNSTORABLE"
Batch = Sequence[tuple[Running, Transition]]
Answered = Callable[[Batch, Mapping[str, jobs.Answer]], None]


class Settler:
    """The one writer of outcomes in a worker."""

    def __init__(
        self,
        store: Store,
        keep: jobs.Keep,
        *,
        before: Callable[[list[str]], Awaitable[None]],
        answered: Answered,
        flushed: Callable[[], None],
    ) -> None:
        self._store, self._keep = store, keep
        self._before, self._answered, self._flushed = before, answered, flushed
        self._pending: list[tuple[Running, Transition]] = []
        self._arrived = asyncio.Event()
        self._writing = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._write_until_cancelled())

    @property
    def backlog(self) -> int:
        """Outcomes that are not yet committed."""
        return len(self._pending) + self._writing

    def put(self, running: Running, transition: Transition) -> None:
        """Hand over an outcome."""
        self._pending.append((running, transition))
        self._arrived.set()

    def settle(self, running: Running, end: AttemptEnd) -> None:
        """Decide what follows the end of an attempt, and have it written. Something follows in any case."""
        try:
            transition = decide(running.job, end, random.random())
        except Exception as broken:
            transition = undecided(running.job, broken)
        self.put(running, transition)

    async def drain(self, timeout: float) -> bool:
        """Wait until everything handed over is written; False when time is up."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self.backlog and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        return not self.backlog

    async def stop(self) -> None:
        """Stop writing."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_until_cancelled(self) -> None:
        delay = 0.0
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            self._writing = len(batch)
            try:
                await self._write(batch)
                delay, self._writing = 0.0, 0
                self._flushed()
                if self._pending:
                    self._arrived.set()
            except Exception as error:
                # Nothing is lost: the leases are still ours, and a repeat of what was written answers `duplicate`.
                delay = min(2.0, delay * 2 or 0.1)
                self._pending = batch + self._pending
                self._arrived.set()
                self._writing = 0
                with suppress(Exception):  # a filter of the log is somebody's code
                    if isinstance(error, (StoreUnavailable, StorageFull)):
                        self._store.outage.failed(f"settler ({len(batch)} outcomes wait)", error)
                    else:
                        log.warning("%d outcomes wait for the database: %r", len(batch), error, exc_info=True)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            finally:
                self._writing = 0

    async def _write(self, batch: list[tuple[Running, Transition]]) -> None:
        """Write a batch, in one transaction or, if the database refuses that, each outcome by itself."""
        try:
            await self._before([running.job.id for running, _ in batch])
            settlements = [(running.job, transition) for running, transition in batch]
            await jobs.settle(self._store, settlements, self._keep, tell=partial(self._tell, batch))
        except aside.OUTAGE:
            raise
        except Exception as error:
            with suppress(Exception):
                log.error("a batch of %d outcomes was refused (%s); writing them one by one", len(batch), error)
            for one in batch:
                await self._write_alone(*one)

    async def _write_alone(self, running: Running, transition: Transition) -> None:
        """A refused outcome is replaced by a fixed text that any database takes: no job stays running for it. If its
        row takes not even that, it is set aside, and not run again by itself."""
        tell = partial(self._tell, [(running, transition)])
        try:
            await jobs.settle(self._store, [(running.job, transition)], self._keep, tell)
        except aside.OUTAGE:
            self.put(running, transition)
            return
        except Exception as error:
            with suppress(Exception):
                log.error(
                    "the outcome of job %s cannot be stored: %s",
                    running.job.id,
                    error,
                    extra=job_fields(running.job),
                )
            await self._put_instead(running, transition, error)

    async def _put_instead(self, running: Running, refused: Transition, error: Exception) -> None:
        """Less with each refusal: a fixed text, then no follow-up; at last its row is set aside."""
        job = running.job
        if (instead := unstorable(job, refused)) is not None:
            self.put(running, instead)
        elif job.on_dead is not None:
            log.error("job %s ends without its follow-up", job.id, extra=job_fields(job))
            running.job = job._replace(on_success=None, on_dead=None)
            self.put(running, refused)
        else:
            await self._set_aside(running, refused, error)

    def _tell(self, batch: Batch, answers: Mapping[str, jobs.Answer]) -> None:
        """Outcomes that are written must not be written again for what is done with the news of them."""
        try:
            self._answered(batch, answers)
        except Exception:
            with suppress(Exception):
                log.exception("%d jobs are settled; what follows in their worker failed", len(batch))

    async def _set_aside(self, running: Running, transition: Transition, error: Exception) -> None:
        try:
            await aside.put(self._store, running.job.id, "settle", error, again=None)
        except aside.OUTAGE:
            self.put(running, transition)
            return
        self._tell([(running, transition)], {running.job.id: "lost"})


def unstorable(job: Claimed, refused: Transition) -> Transition | None:
    """What is written instead of an outcome that the database refused; None when that was tried, or cannot be told."""
    if refused.error_code == UNSTORABLE:
        return None
    permanent = refused.outcome is Outcome.SUCCEEDED
    end = Failed(UNSTORABLE, "the outcome of this attempt could not be stored", permanent=permanent)
    try:
        return decide(job, end, random.random())
    except Exception:  # its row holds what no rule can be applied to
        return None


def undecided(job: Claimed, broken: Exception) -> Transition:
    """What follows when no decision could be made: an internal failure, without the job's own backoff; dead, if no rule
    can be applied to its row at all."""
    failed = internal(job, "what follows the attempt could not be decided", broken)
    try:
        return decide(job._replace(backoff=None), failed, random.random())
    except Exception:
        return Transition(State.DEAD, Outcome.FAILED, error_code=failed.code, error_message=failed.message)
