"""Stops attempts that must not go on: cancelled, lost, fenced, overrun, or in the way of a shutdown.

Ask; after two seconds ask again; after five write the outcome without the attempt, whose lease is then no longer its
own: whatever it still returns is ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rowlock.core.outcome import AttemptEnd
from rowlock.work.heartbeat import Lease
from rowlock.work.running import Running

log = logging.getLogger("rowlock.worker")

SECOND_CANCEL_SECONDS = 2.0
GIVE_UP_SECONDS = 5.0


class Stopping:
    """The ways in which a worker's attempts are stopped."""

    def __init__(
        self,
        running: dict[str, Running],
        settle: Callable[[Running, AttemptEnd], None],
        forget: Callable[[Running], None],
    ) -> None:
        self._running, self._settle, self._forget = running, settle, forget

    def lost(self, leases: list[Lease]) -> None:
        """These leases belong to somebody else now."""
        for running in self._of(leases):
            log.warning("Job %s: the lease was lost; its attempt is stopped", running.job.id)
            self.stop(running, "lost")
            self._forget(running)

    def cancelled(self, leases: list[Lease]) -> None:
        """Somebody asked for these to be cancelled."""
        for running in self._of(leases):
            if running.reason not in ("cancel", "lost"):
                self.stop(running, "cancel")

    def fenced(self, leases: list[Lease]) -> None:
        """These leases could not be renewed and may soon be somebody else's."""
        for running in self._of(leases):
            log.warning("Job %s: no beat for too long; stopped before its lease runs out", running.job.id)
            self.stop(running, "fenced")

    def all_now(self) -> None:
        """The end of a shutdown's grace."""
        for running in list(self._running.values()):
            if running.task is not None and not running.ended:
                self.stop(running, "shutdown")

    def give_up_all(self) -> None:
        """Write the outcome of whatever still runs without it: the worker leaves."""
        for running in list(self._running.values()):
            if running.task is not None:
                self._give_up(running)

    def _of(self, leases: list[Lease]) -> list[Running]:
        """The attempts that hold these leases: by token, for a job may already be here again under another."""
        found = [(self._running.get(job_id), token) for job_id, token in leases]
        return [r for r, token in found if r is not None and r.job.token == token and not r.ended]

    def stop(self, running: Running, reason: str) -> None:
        """Ask, ask again, and at last write the outcome without the attempt."""
        if running.task is None:  # it has not begun
            running.ended = True
            if reason != "lost":
                self._settle(running, running.end(reason))
            return
        running.stop(reason)
        loop = asyncio.get_running_loop()
        loop.call_later(SECOND_CANCEL_SECONDS, self._ask_again, running)
        loop.call_later(GIVE_UP_SECONDS, self._give_up, running)

    def _ask_again(self, running: Running) -> None:
        if not running.ended and not running.abandoned:
            log.warning("Job %s (%s) ignores being stopped (%s)", running.job.id, running.job.task, running.reason)
            running.stop(running.reason or "shutdown")

    def _give_up(self, running: Running) -> None:
        if running.ended or running.abandoned or running.reason is None:
            return
        if running.blocking and running.reason == "timeout":
            return  # a thread keeps its lease until it returns, so that no second attempt runs beside it
        running.abandoned = True
        if running.reason != "lost":
            self._settle(running, running.end(running.reason))
