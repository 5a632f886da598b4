"""Slots: the jobs that one worker holds, from their claim until their outcome is written.

The executor adds and starts jobs, the settler reports written outcomes; heartbeat and shutdown only read.
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
        self.unstarted: deque[LiveAttempt] = deque()  # claimed, in the order in which they will start
        self.suspects: deque[LiveAttempt] = deque()  # claimed, and waiting for the quarantine child
        self.occupied = 0  # slots whose attempt has not returned
        self.closed = False  # start no more jobs
        self.stale_refused = 0  # outcomes refused because the lease was lost

    def fill(self) -> Fill:
        begun = self.occupied + len(self.unstarted)
        return Fill(max(0, self.size - begun), max(0, begun - self.size), len(self.held) - begun - len(self.suspects))

    def add(self, claimed: list[Claimed], sent: float) -> None:
        """Add claimed jobs for the executor to start. Their leases count from `sent`, when their claim was sent."""
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
        """Remove a job whose lease was released or lost; returns whether it was held."""
        if held := self.holds(attempt):
            del self.held[attempt.job.id]
        return held

    # --- the last step of an attempt: drop its job, notify watchers and claimer

    def settled(self, batch: Sequence[tuple[LiveAttempt, Transition]], answers: Mapping[str, settle.Answer]) -> None:
        """The settler has written these outcomes; `answers` says which were refused because the lease was lost."""
        now, held, done = time.monotonic(), self.held, list[tuple[Claimed, float]]()
        for attempt, transition in batch:
            job, seconds = attempt.job, now - attempt.started
            if held.get(job.id) is attempt:  # `forget`, inlined: a batch may have a thousand jobs
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
        """An attempt has ended without an outcome for the settler: its own transaction has committed its success, or
        its lease was lost."""
        if attempt.job.source is not None:
            self._claimer.freed(attempt.job.source)
        held = self.forget(attempt)
        if attempt.reason == "lost":
            self.stale_refused += held
        else:
            self.watcher.succeeded([(attempt.job, time.monotonic() - attempt.started)])
