"""Slots: the jobs that one worker holds, from their claim until their outcome is written.

The executor adds and starts them, the settler reports what it has written; heartbeat and shutdown read them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rowlock.core.claiming.actions import Fill
from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.signals.events import Watcher
from rowlock.store.jobs import settle
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.claimer import Claimer


class Slots:
    def __init__(self, worker_id: str, size: int, claimer: Claimer, watcher: Watcher) -> None:
        self.worker_id, self.size, self._claimer, self.watcher = worker_id, size, claimer, watcher
        self.held: dict[str, LiveAttempt] = {}  # claimed and not yet settled, by job id
        self.unstarted: deque[LiveAttempt] = deque()  # claimed, and to be started in this order
        self.suspects: deque[LiveAttempt] = deque()  # claimed, and waiting for the quarantine child
        self.occupied = 0  # slots with an attempt that has not returned
        self.closed = False  # nothing more is started
        self.stale_refused = 0  # outcomes that came after the lease was lost, and changed nothing

    def fill(self) -> Fill:
        begun = self.occupied + len(self.unstarted)
        return Fill(max(0, self.size - begun), max(0, begun - self.size), len(self.held) - begun - len(self.suspects))

    def add(self, claimed: list[Claimed], sent: float) -> None:
        """Add claimed jobs, whose leases count from `sent`, when their claim was sent. The executor starts them."""
        held, unstarted = self.held, self.unstarted
        for job in claimed:
            attempt = held[job.id] = LiveAttempt(job, sent)
            unstarted.append(attempt)
        with suppress(Exception):  # a logging filter is user code
            self.watcher.claimed(claimed, sent)

    def holds(self, attempt: LiveAttempt) -> bool:
        """Whether this attempt, and not a later one of its job, holds the job's lease here."""
        return self.held.get(attempt.job.id) is attempt

    def forget(self, attempt: LiveAttempt) -> bool:
        """Remove a job whose lease was given up or lost; returns whether it was held."""
        if held := self.holds(attempt):
            del self.held[attempt.job.id]
        return held

    # --- the last step of an attempt: let go of its job, notify watchers and claimer

    def settled(self, batch: Sequence[tuple[LiveAttempt, Transition]], answers: Mapping[str, settle.Answer]) -> None:
        """The settler has written these outcomes; `answers` says which were refused because the lease was lost."""
        now, held, done = time.monotonic(), self.held, list[tuple[Claimed, float]]()
        for attempt, transition in batch:
            job, seconds = attempt.job, now - attempt.started
            if held.get(job.id) is attempt:  # as `forget`, without two calls for each of a thousand jobs
                del held[job.id]
            if job.source is not None:
                self._claimer.freed(job.source)
            if answers[job.id] == "lost":
                self.stale_refused += 1
                self.watcher.refused(job, transition.outcome)
            elif transition.state is State.SUCCEEDED:
                done.append((job, seconds))
            else:
                self.watcher.ended(job, transition, seconds)
                if transition.state in (State.QUEUED, State.RETRYABLE):
                    self._claimer.woken()
        if done:
            self.watcher.succeeded(done)

    def nothing_to_settle(self, attempt: LiveAttempt) -> None:
        """An attempt has ended, and its outcome is not the settler's to write: its own transaction has committed its
        success, or its lease was lost."""
        if attempt.job.source is not None:
            self._claimer.freed(attempt.job.source)
        held = self.forget(attempt)
        if attempt.reason == "lost":
            self.stale_refused += held
        else:
            self.watcher.succeeded([(attempt.job, time.monotonic() - attempt.started)])
