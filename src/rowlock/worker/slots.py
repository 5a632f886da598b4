"""Slots: the jobs that one worker holds. The claimer adds jobs, the executor starts them; heartbeat, settler and
shutdown read them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

from rowlock.core.job import Claimed
from rowlock.signals.watchers import Watcher
from rowlock.worker.running import Running


class Slots:
    """The jobs that one worker holds, and how many of its slots are occupied."""

    def __init__(self, worker: str, size: int, watcher: Watcher) -> None:
        self.id, self.size, self.watcher = worker, size, watcher
        self.held: dict[str, Running] = {}  # claimed and not yet settled, by job id
        self.unstarted: deque[Running] = deque()  # claimed, and to be started in this order
        self.suspects: deque[Running] = deque()  # claimed, and waiting for the quarantine child
        self.occupied = 0  # slots with an attempt that has not returned
        self.start_waiting: Callable[[], None] = _nothing  # of the executor, which sets it: start what was claimed
        self.closed = False  # nothing more is started

    @property
    def free(self) -> int:
        """Slots for which no job is claimed yet."""
        return max(0, self.size - self.occupied - len(self.unstarted))

    @property
    def waiting(self) -> int:
        """Jobs claimed beyond the free slots."""
        return max(0, self.occupied + len(self.unstarted) - self.size)

    @property
    def unsettled(self) -> int:
        """Attempts that have returned, and whose outcome is not written yet."""
        return len(self.held) - self.occupied - len(self.unstarted) - len(self.suspects)

    def take(self, claimed: list[Claimed], sent: float) -> None:
        """Hold these jobs from the moment their claim was sent, and have them started."""
        held, unstarted = self.held, self.unstarted
        for job in claimed:
            attempt = held[job.id] = Running(job, sent)
            unstarted.append(attempt)
        with suppress(Exception):  # a logging filter is user code
            self.watcher.claimed(claimed, sent)
        self.start_waiting()  # here, not in a task that waits for news: that would delay each job by a turn of the loop

    def holds(self, attempt: Running) -> bool:
        """Whether this attempt, and not a later one of its job, holds the job's lease here."""
        return self.held.get(attempt.job.id) is attempt

    def forget(self, attempt: Running) -> bool:
        """Hold the job no longer: its lease was given up or lost. Answers whether it was held until now."""
        if held := self.holds(attempt):
            del self.held[attempt.job.id]
        return held


def _nothing() -> None:
    """Nobody starts jobs here."""
