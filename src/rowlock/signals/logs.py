"""The worker's log lines. Library code never configures logging; it only speaks to the `rowlock` loggers.

A line per job is what people want to read at ten jobs a second and what drowns them at ten thousand, so job lines are
written up to a budget per second and beyond that only the summary remains.
"""

from __future__ import annotations

import logging
import time
from collections import Counter

from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.core.states import State

log = logging.getLogger("rowlock.worker")

LINES_PER_SECOND = 100
SUMMARY_SECONDS = 10.0


class JobLog:
    """Counts what a worker did and writes about it. The counts leave out jobs of the tasks in `uncounted`: bookkeeping
    that follows other jobs would hide how those do."""

    def __init__(self, worker: str, uncounted: frozenset[str] = frozenset()) -> None:
        self._worker, self._uncounted = worker, uncounted
        self._second, self._lines = 0, 0
        self._summary_at = time.monotonic() + SUMMARY_SECONDS
        self._claimed = self._succeeded = self._failed = 0
        self._seconds = 0.0
        self._failures: Counter[str] = Counter()

    def _may_speak(self) -> bool:
        if not log.isEnabledFor(logging.INFO):
            return False
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND

    def claimed(self, jobs: list[Claimed]) -> None:
        """A claim came back with these jobs."""
        self._claimed += sum(job.task not in self._uncounted for job in jobs) if self._uncounted else len(jobs)
        for job in jobs:
            if not self._may_speak():
                break
            log.info("Job %s claimed by %s", job.id, self._worker, extra={"task": job.task, "attempt": job.attempt})

    def succeeded(self, job: Claimed, seconds: float) -> None:
        """An attempt succeeded."""
        if job.task not in self._uncounted:
            self._succeeded += 1
            self._seconds += seconds
        if self._may_speak():
            log.info(
                "Job %s completed in %.1fs",
                job.id,
                seconds,
                extra={"job_duration_ms": round(seconds * 1000, 3)},
            )

    def ended(self, job: Claimed, transition: Transition, seconds: float) -> None:
        """An attempt ended in another way."""
        code, message = transition.error_code or transition.outcome, transition.error_message or ""
        if transition.state in (State.DEAD, State.RETRYABLE) and job.task not in self._uncounted:
            self._failed += 1
            self._seconds += seconds
            self._failures[job.source or job.task] += 1
        level = logging.ERROR if transition.state is State.DEAD else logging.WARNING
        if transition.state in (State.QUEUED, State.CANCELLED):
            level = logging.INFO
        if level > logging.INFO or self._may_speak():
            after = f", again in {transition.delay:.1f}s" if transition.state is State.RETRYABLE else ""
            log.log(
                level,
                "Job %s (%s) %s, now %s%s: %s %s",
                job.id,
                job.task,
                transition.outcome,
                transition.state,
                after,
                one_line(code),
                one_line(message),
                extra={"job_duration_ms": round(seconds * 1000, 3), "attempt": job.attempt},
            )

    def summarise(self, force: bool = False) -> None:
        """Log what this worker did since the last summary: every ten seconds, if it did anything."""
        now = time.monotonic()
        if (now < self._summary_at and not force) or not (self._claimed or self._succeeded or self._failed):
            return
        done = self._succeeded + self._failed
        fields = {
            "batch_claimed_count": self._claimed,
            "success_count": self._succeeded,
            "fail_count": self._failed,
            "job_duration_ms": round(self._seconds / done * 1000, 3) if done else 0.0,
            "top_failures": ", ".join(f"{name}={count}" for name, count in self._failures.most_common(3)),
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        log.info("Worker %s: %s", self._worker, text, extra=fields)
        self._summary_at = now + SUMMARY_SECONDS
        self._claimed = self._succeeded = self._failed = 0
        self._seconds = 0.0
        self._failures.clear()


def one_line(text: str, limit: int = 500) -> str:
    """Job text for a log line: control characters escaped, so that it cannot forge another line."""
    shown = text[:limit].encode("unicode_escape").decode("ascii") if not text[:limit].isprintable() else text[:limit]
    return shown
