"""One attempt in this worker: its lease, its task, and how it is told to stop."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from rowlock.client.context import Context
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Released, TimedOut

# Why an attempt is told to stop, in the order in which one may replace another.
LONGEST_TIMEOUT = 3_200_000_000.0  # seconds, a hundred years
REASONS = ("shutdown", "fenced", "timeout", "cancel", "lost")


class Running:
    """A claimed job from its claim to its settlement."""

    __slots__ = (
        "abandoned", "begun", "blocking", "ctx", "ended", "fenced", "job", "plain", "reason", "renewed", "started",
        "task", "token",
    )  # fmt: skip

    def __init__(self, job: Claimed, claimed: float = 0.0) -> None:
        timeout = job.timeout_seconds
        if timeout is not None and not 0 < timeout < LONGEST_TIMEOUT:
            # Another program wrote it. One that is no number would break the order of all timers of the event loop.
            job = job._replace(timeout_seconds=None)
        self.job = job
        self.token = job.token
        # Nothing but its own row is touched when it succeeds.
        self.plain = job.source is None and job.batch_id is None and job.unique_mode is None and job.on_success is None
        self.renewed = claimed  # when its lease was last renewed
        self.fenced = False
        self.task: asyncio.Task[Any] | None = None
        self.ctx: Context | None = None
        self.blocking = False  # a thread runs it: it cannot be cancelled, only asked
        self.begun = False  # a task that is cancelled before its first step would never run at all
        self.reason: str | None = None
        self.abandoned = False  # its outcome was written without it; whatever it still returns is ignored
        self.ended = False
        self.started = 0.0

    def end(self, reason: str) -> AttemptEnd:
        """How an attempt ends that was stopped for this reason (for `lost` nobody asks any more)."""
        if reason == "cancel":
            return Cancelled()
        if reason == "timeout":
            return TimedOut(self.job.timeout_seconds or 0.0)
        return Released(random.random(), "shutdown" if reason == "shutdown" else "database out of reach")

    def stop(self, reason: str) -> None:
        """Ask the attempt to stop; a graver reason replaces a lighter one."""
        if self.reason is None or REASONS.index(reason) > REASONS.index(self.reason):
            self.reason = reason
        if self.ctx is not None:
            self.ctx.should_stop = True
            self.ctx._lost = self.ctx._lost or reason == "lost"
        if self.task is not None and self.begun and not self.blocking and not self.ended:
            self.task.cancel()
