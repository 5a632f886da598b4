"""One attempt in this worker: its lease, its task, and how it is stopped."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from rowlock.client.context import Context
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Released, TimedOut

LONGEST_TIMEOUT = 3_200_000_000.0  # seconds, a hundred years
# Why an attempt is asked to stop; a later one in this list replaces an earlier one.
REASONS = ("shutdown", "unrenewed", "timeout", "cancel", "lost")


class LiveAttempt:
    """One attempt, from the claim of its job until its outcome is written. `sent` is when the claim was sent."""

    __slots__ = (
        "abandoned", "begun", "blocking", "ctx", "ended", "unrenewed", "job", "reason", "renewed", "started",
        "task", "token",
    )  # fmt: skip

    def __init__(self, job: Claimed, sent: float = 0.0) -> None:
        timeout = job.timeout_seconds
        if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < LONGEST_TIMEOUT):
            # Another program wrote it. A NaN would break the order of all timers of the event loop; a text (SQLite
            # stores any) would be an error here, after the claim, and the jobs claimed with it would be lost.
            job = job._replace(timeout_seconds=None)
        self.job = job
        self.token = job.token
        self.renewed = sent  # when the claim or the last heartbeat was sent: its lease counts from then, or later
        self.unrenewed = False  # its lease could not be renewed for too long, so the heartbeat has had it stopped
        self.task: asyncio.Task[Any] | None = None
        self.ctx: Context | None = None
        self.blocking = False  # a thread runs it: it can be asked to stop, but not cancelled
        self.begun = False  # `task` has run its first step; cancelled before that, it would end without an outcome
        self.reason: str | None = None  # why it was asked to stop, one of REASONS; None: it was not
        self.abandoned = False  # its outcome was written without it; what it returns later is ignored
        self.ended = False  # it has returned, or was stopped before it started; its outcome may not be written yet
        self.started = 0.0  # a moment of `time.monotonic`: when it began to run, or a suspect to wait

    def end(self, reason: str) -> AttemptEnd:
        """The outcome of an attempt that was stopped for this reason; not for `lost`, which writes no outcome."""
        if reason == "cancel":
            return Cancelled()
        if reason == "timeout":
            return TimedOut(self.job.timeout_seconds or 0.0)
        why = "shutdown" if reason == "shutdown" else "database out of reach"
        return Released(random.random(), why, "stopped")

    def stop(self, reason: str) -> None:
        """Ask the attempt to stop; a reason later in REASONS replaces an earlier one."""
        if self.reason is None or REASONS.index(reason) > REASONS.index(self.reason):
            self.reason = reason
        if self.ctx is not None:
            self.ctx.should_stop = True
            self.ctx._lost = self.ctx._lost or reason == "lost"
        if self.task is not None and self.begun and not self.blocking and not self.ended:
            self.task.cancel()
