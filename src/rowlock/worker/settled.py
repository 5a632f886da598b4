"""What follows in a worker when an outcome is written: the job is no longer held, watchers hear of it, and the claimer
learns what may be claimable now."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.signals.watchers import Watcher
from rowlock.store import jobs, leases
from rowlock.worker.claimer import Claimer
from rowlock.worker.running import Running
from rowlock.worker.slots import Slots


class Settled:
    """The last step of every attempt; counts the outcomes that were refused because the lease was lost."""

    def __init__(self, slots: Slots, claimer: Claimer, watcher: Watcher) -> None:
        self._slots, self._claimer, self._watcher = slots, claimer, watcher
        self.stale_refused = 0  # outcomes that came after the lease was lost, and changed nothing
        self.reclaimed = 0  # leases of other workers that this one ended

    def by_settler(self, batch: Sequence[tuple[Running, Transition]], answers: Mapping[str, jobs.Answer]) -> None:
        """The settler has written these outcomes, but for those that were refused."""
        now, done = time.monotonic(), list[tuple[Claimed, float]]()
        for attempt, transition in batch:
            job, seconds = attempt.job, now - attempt.started
            self._forget(attempt)
            if answers[job.id] == "lost":
                self.stale_refused += 1
                self._watcher.refused(job, transition.outcome)
            elif transition.state is State.SUCCEEDED:
                done.append((job, seconds))
            else:
                self._watcher.ended(job, transition, seconds)
                if transition.state in (State.QUEUED, State.RETRYABLE):
                    self._claimer.woken()
        if done:
            self._watcher.succeeded(done)

    def by_itself(self, attempt: Running) -> None:
        """The attempt's own transaction has settled it, or it has no lease any more."""
        held = self._forget(attempt)
        if attempt.reason == "lost":
            self.stale_refused += held
        else:
            self._watcher.succeeded([(attempt.job, time.monotonic() - attempt.started)])

    def _forget(self, attempt: Running) -> bool:
        if attempt.job.source is not None:
            self._claimer.freed(attempt.job.source)
        return self._slots.forget(attempt)

    def by_sweeper(self, reclaimed: list[leases.Reclaimed]) -> None:
        """The sweeper has ended leases of other workers."""
        self.reclaimed += len(reclaimed)
        self._watcher.reclaimed(reclaimed)
        self._claimer.woken()
