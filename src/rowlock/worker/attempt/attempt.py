"""One attempt in this worker: its lease, its task, and how it is stopped.

An attempt is stopped if its job is cancelled, if it exceeds its timeout, if its lease is lost or could not be renewed,
or if the worker stops. It is asked to stop, and asked again after two seconds. After five seconds it is abandoned: its
outcome is written, which ends its lease, and whatever it returns later is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from rowlock.client.context import Context
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Released, TimedOut
from rowlock.signals.logs import job_fields

if TYPE_CHECKING:
    from rowlock.worker.attempt.slots import Slots
    from rowlock.worker.settler import Settler

log = logging.getLogger("rowlock.worker")

SECOND_CANCEL_SECONDS = 2.0  # after the first: the handler may have swallowed it
GIVE_UP_SECONDS = 5.0  # after the first cancel: abandon the attempt
LONGEST_TIMEOUT = 3_200_000_000.0  # seconds, a hundred years
# Why an attempt is asked to stop. A later reason in this list overrides an earlier one.
REASONS = ("shutdown", "unrenewed", "timeout", "cancel", "lost")


class LiveAttempt:
    """One attempt, from the claim of its job (sent at `sent`) until its outcome is written."""

    __slots__ = (
        "abandoned", "begun", "blocking", "ctx", "ended", "unrenewed", "job", "reason", "renewed", "started",
        "task", "token",
    )  # fmt: skip

    def __init__(self, job: Claimed, sent: float = 0.0) -> None:
        timeout = job.timeout_seconds
        if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < LONGEST_TIMEOUT):
            # Another program wrote this value. A NaN would corrupt the event loop's timer heap. A text, which SQLite
            # allows, would raise here, after the claim, and the other jobs of the claim would never start.
            job = job._replace(timeout_seconds=None)
        self.job = job
        self.token = job.token
        self.renewed = sent  # when the claim or last heartbeat was sent: the lease runs from then or a bit later
        self.unrenewed = False  # stopped by the heartbeat, which could not renew its lease for too long
        self.task: asyncio.Task[Any] | None = None
        self.ctx: Context | None = None
        self.blocking = False  # runs in a thread: it can be asked to stop, but not cancelled
        self.begun = False  # `task` has run its first step; if cancelled before that, it would end without an outcome
        self.reason: str | None = None  # why it was asked to stop, one of REASONS; None if it wasn't
        self.abandoned = False  # settled while it still runs; whatever it returns later is ignored
        self.ended = False  # it has returned, or was stopped before it started; its outcome may not be written yet
        self.started = 0.0  # `time.monotonic()` when it began to run, or began to wait as a suspect

    def end(self, reason: str) -> AttemptEnd:
        """The end of an attempt that was stopped for this reason, which must not be `lost`: that writes no outcome."""
        if reason == "cancel":
            return Cancelled()
        if reason == "timeout":
            return TimedOut(self.job.timeout_seconds or 0.0)
        why = "shutdown" if reason == "shutdown" else "the lease could not be renewed"
        return Released(random.random(), why, "stopped")

    def stop(self, reason: str) -> None:
        """Ask the attempt to stop."""
        if self.reason is None or REASONS.index(reason) > REASONS.index(self.reason):
            self.reason = reason
        if self.ctx is not None:
            self.ctx.should_stop = True
            self.ctx._lost = self.ctx._lost or reason == "lost"
        if self.task is not None and self.begun and not self.blocking and not self.ended:
            self.task.cancel()


class Stopping:
    def __init__(self, slots: Slots, settler: Settler) -> None:
        self._slots, self._settler = slots, settler

    def lost(self, attempts: list[LiveAttempt]) -> None:
        """These attempts have lost their leases to other workers."""
        for attempt in self._unended(attempts):
            self.stop(attempt, "lost")
            self._slots.forget(attempt)
            self._slots.watcher.lost(attempt.job)

    def cancelled(self, attempts: list[LiveAttempt]) -> None:
        """A cancel was requested for the jobs of these attempts."""
        for attempt in self._unended(attempts):
            if attempt.reason not in ("cancel", "lost"):
                self.stop(attempt, "cancel")

    def unrenewed(self, attempts: list[LiveAttempt]) -> None:
        """The leases of these attempts could not be renewed, and another worker may soon own them."""
        for attempt in self._unended(attempts):
            job = attempt.job
            text = "Job %s: its lease could not be renewed; stopping it before the lease expires"
            log.warning(text, job.id, extra=job_fields(job))
            self.stop(attempt, "unrenewed")

    def all_now(self) -> None:
        """The grace period of a shutdown is over: stop all attempts that have started."""
        for attempt in list(self._slots.held.values()):
            if attempt.task is not None and not attempt.ended:
                self.stop(attempt, "shutdown")

    def give_up_all(self) -> None:
        """The worker is about to exit: abandon the attempts that still run, and settle their jobs."""
        for attempt in list(self._slots.held.values()):
            if attempt.task is not None:
                self._give_up(attempt)

    def give_back_unstarted(self) -> None:
        """The worker stops: put claimed jobs that have not started back in the queue, which doesn't count as a try."""
        for waiting in (self._slots.unstarted, self._slots.suspects):
            while waiting:
                attempt = waiting.popleft()
                if not attempt.ended:
                    self.stop(attempt, "shutdown")

    def _unended(self, attempts: list[LiveAttempt]) -> list[LiveAttempt]:
        """Those of the attempts that have not ended: the others need no stop any more."""
        return [attempt for attempt in attempts if self._slots.holds(attempt) and not attempt.ended]

    def stop(self, attempt: LiveAttempt, reason: str) -> None:
        """Ask the attempt to stop, ask again after two seconds, and abandon it after five."""
        if attempt.task is None:  # not started; a waiting suspect has a start time already
            attempt.ended, attempt.started = True, attempt.started or time.monotonic()
            if reason != "lost":
                self._settler.settle(attempt, attempt.end(reason))
            return
        attempt.stop(reason)
        loop = asyncio.get_running_loop()
        loop.call_later(SECOND_CANCEL_SECONDS, self._ask_again, attempt)
        loop.call_later(GIVE_UP_SECONDS, self._give_up, attempt)

    def _ask_again(self, attempt: LiveAttempt) -> None:
        if not attempt.ended and not attempt.abandoned:
            job = attempt.job
            text = "Job %s (%s) did not stop when asked to (%s)"
            log.warning(text, job.id, job.task, attempt.reason, extra=job_fields(job))
            attempt.stop(attempt.reason or "shutdown")

    def _give_up(self, attempt: LiveAttempt) -> None:
        if attempt.ended or attempt.abandoned or attempt.reason is None:
            return
        if attempt.blocking and attempt.reason == "timeout":
            return  # a thread keeps its lease until it returns, so that a second attempt cannot run beside it
        attempt.abandoned = True
        if attempt.reason != "lost":
            self._settler.settle(attempt, attempt.end(attempt.reason))
