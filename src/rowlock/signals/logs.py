"""The worker's log lines, written to the `rowlock` loggers; configuring them is left to the program.

A line per job is useful at ten jobs a second and useless at ten thousand. So lines about single jobs are written up to
a budget per second; beyond it there is only a summary. A failure always has its line, but no traceback beyond the
budget.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rowlock.core.job import Claimed, running_job
from rowlock.core.policy import Transition
from rowlock.core.states import Outcome, State
from rowlock.core.tracebacks import LOGGED_BYTES, traceback_text
from rowlock.signals.events import Watcher

log = logging.getLogger("rowlock.worker")
LINES_PER_SECOND = 100
SUMMARY_SECONDS = 10.0


def job_fields(job: Claimed) -> dict[str, Any]:
    """The fields of every line about a job."""
    return {"job_id": job.id, "task": job.task, "attempt": job.attempt, "worker": job.worker}


class JobFields(logging.Filter):
    """Adds `job_id`, `task`, `attempt` and `worker` to each record that is logged while a job runs, whatever logger it
    is logged with. Add it to a handler: a filter of a logger does not see the records of the loggers below it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have. No record is dropped."""
        job = running_job()
        if job is not None:
            for name, value in job_fields(job).items():
                record.__dict__.setdefault(name, value)
        return True


class JobLog(Watcher):
    """Logs what a worker does. The summary leaves out jobs of the tasks in `uncounted`: bookkeeping that follows other
    jobs would hide how those do."""

    def __init__(self, worker: str, uncounted: frozenset[str] = frozenset()) -> None:
        self._worker, self._uncounted = worker, uncounted
        self._second, self._lines = 0, 0
        self._summary_at = time.monotonic() + SUMMARY_SECONDS
        self._claimed = self._succeeded = self._failed = 0
        self._seconds = 0.0
        self._failures: Counter[str] = Counter()

    def _within_budget(self, level: int = logging.INFO) -> bool:
        if not log.isEnabledFor(level):
            return False
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND

    def claimed(self, jobs: Sequence[Claimed], sent: float) -> None:
        self._claimed += sum(job.task not in self._uncounted for job in jobs) if self._uncounted else len(jobs)
        for job in jobs:
            if not self._within_budget():
                break
            log.info("Job %s claimed by %s", job.id, self._worker, extra=job_fields(job))

    def succeeded(self, done: Sequence[tuple[Claimed, float]]) -> None:
        counted = [seconds for job, seconds in done if job.task not in self._uncounted]
        self._succeeded += len(counted)
        self._seconds += sum(counted)
        for job, seconds in done:
            if not self._within_budget():
                break
            log.info("Job %s completed in %.1fs", job.id, seconds, extra=_timed(job, seconds))

    def ended(self, job: Claimed, transition: Transition, seconds: float) -> None:
        if transition.state in (State.DEAD, State.RETRYABLE) and job.task not in self._uncounted:
            self._failed += 1
            self._seconds += seconds
            self._failures[job.source or job.task] += 1
        level = logging.ERROR if transition.state is State.DEAD else logging.WARNING
        if transition.state in (State.QUEUED, State.CANCELLED):
            level = logging.INFO
        within_budget = self._within_budget(level)
        if not log.isEnabledFor(level) or (level == logging.INFO and not within_budget):
            return
        code, message = transition.error_code or transition.outcome, transition.error_message or ""
        trace = transition.trace if within_budget else None
        if trace is not None:
            message = message.partition("\n")[0]  # the other lines show where it was raised
        after = f", again in {transition.delay:.1f}s" if transition.state is State.RETRYABLE else ""
        text = "Job %s (%s) %s, now %s%s: %s %s"
        about = (job.id, job.task, transition.outcome, transition.state, after, one_line(code), one_line(message))
        fields = _timed(job, seconds) | {"outcome": str(transition.outcome), "error_code": one_line(code)}
        record = log.makeRecord(log.name, level, __file__, 0, text, about, None, extra=fields)
        if trace is not None:
            # As text, not as exc_info: a listener to the log, such as an error tracker, could read the local variables
            # of the frames, and with them the job's arguments.
            record.exc_text = traceback_text(trace, LOGGED_BYTES)
        log.handle(record)

    def refused(self, job: Claimed, outcome: Outcome) -> None:
        log.warning("Job %s: a late %s was refused; the lease was lost", job.id, outcome, extra=job_fields(job))

    def lost(self, job: Claimed) -> None:
        log.warning("Job %s: the lease was lost; its attempt is stopped", job.id, extra=job_fields(job))

    def reclaimed(self, lost: Sequence[tuple[Claimed, Transition]]) -> None:
        for job, transition in lost:
            log.warning("Job %s reclaimed from %s, now %s", job.id, job.worker, transition.state, extra=job_fields(job))
        log.warning("Reset %d stuck jobs", len(lost))

    def rested(self) -> None:
        """Log a summary every ten seconds, if there was anything to do."""
        if time.monotonic() >= self._summary_at:
            self._summarise()

    def stopped(self) -> None:
        self._summarise()

    def _summarise(self) -> None:
        if not (self._claimed or self._succeeded or self._failed):
            return
        done = self._succeeded + self._failed
        fields = {
            "worker": self._worker,
            "batch_claimed_count": self._claimed,
            "success_count": self._succeeded,
            "fail_count": self._failed,
            "job_duration_ms": round(self._seconds / done * 1000, 3) if done else 0.0,
            "top_failures": ", ".join(f"{name}={count}" for name, count in self._failures.most_common(3)),
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value != "" and name != "worker")
        log.info("Worker %s: %s", self._worker, one_line(text), extra=fields)
        self._summary_at = time.monotonic() + SUMMARY_SECONDS
        self._claimed = self._succeeded = self._failed = 0
        self._seconds = 0.0
        self._failures.clear()


def _timed(job: Claimed, seconds: float) -> dict[str, object]:
    return {"job_duration_ms": round(seconds * 1000, 3), **job_fields(job)}


def one_line(text: str, limit: int = 500) -> str:
    """Job text for a log line: control characters escaped, so that it cannot forge another line."""
    text = text[:limit]
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
