"""Stops attempts that must not go on: cancelled, lost, with a lease that could not be renewed, overrun, or
in the way of a shutdown.

An attempt is asked to stop, and asked again after two seconds. After five its outcome is written without it; it has no
lease from then on, and what it returns later is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rowlock.signals.logs import job_fields
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.settler import Settler

log = logging.getLogger("rowlock.worker")

SECOND_CANCEL_SECONDS = 2.0  # after the first: a handler may have swallowed that
GIVE_UP_SECONDS = 5.0  # after the first: the outcome is written without the attempt


class Stopping:
    """The ways in which a worker's attempts are stopped."""

    def __init__(self, slots: Slots, settler: Settler) -> None:
        self._slots, self._settler = slots, settler

    def lost(self, attempts: list[LiveAttempt]) -> None:
        """The leases of these attempts belong to other workers now."""
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
            log.warning(
                "Job %s: no beat for too long; stopped before its lease runs out", job.id, extra=job_fields(job)
            )
            self.stop(attempt, "unrenewed")

    def all_now(self) -> None:
        """The grace of a shutdown is over: stop all attempts that have begun."""
        for attempt in list(self._slots.held.values()):
            if attempt.task is not None and not attempt.ended:
                self.stop(attempt, "shutdown")

    def give_up_all(self) -> None:
        """The worker leaves: write the outcomes of the attempts that still run without them."""
        for attempt in list(self._slots.held.values()):
            if attempt.task is not None:
                self._give_up(attempt)

    def give_back_unstarted(self) -> None:
        """The worker leaves: claimed jobs that have not started go back to the queue; that doesn't count as a try."""
        for waiting in (self._slots.unstarted, self._slots.suspects):
            while waiting:
                attempt = waiting.popleft()
                if not attempt.ended:
                    self.stop(attempt, "shutdown")

    def _unended(self, attempts: list[LiveAttempt]) -> list[LiveAttempt]:
        """The attempts among these that have not ended: a lost lease or a cancel may be noticed after the end."""
        return [attempt for attempt in attempts if self._slots.holds(attempt) and not attempt.ended]

    def stop(self, attempt: LiveAttempt, reason: str) -> None:
        """Ask the attempt to stop, ask again after two seconds, and after five write its outcome without it."""
        if attempt.task is None:  # it has not been started; a suspect has a start time already while it waits
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
            log.warning(
                "Job %s (%s) ignores being stopped (%s)", job.id, job.task, attempt.reason, extra=job_fields(job)
            )
            attempt.stop(attempt.reason or "shutdown")

    def _give_up(self, attempt: LiveAttempt) -> None:
        if attempt.ended or attempt.abandoned or attempt.reason is None:
            return
        if attempt.blocking and attempt.reason == "timeout":
            return  # a thread keeps its lease until it returns, so that no second attempt runs beside it
        attempt.abandoned = True
        if attempt.reason != "lost":
            self._settler.settle(attempt, attempt.end(attempt.reason))
