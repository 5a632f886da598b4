"""Writes what handlers report while they run: progress (`ctx.progress`), and log lines for tasks with `keep_logs`.

Reports come from any thread and are written in batches, progress at most four times a second. A child process sends
its reports to its parent (processes/child.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rowlock.client.context import Report
from rowlock.core.error_text import clean
from rowlock.core.errors import StoreError
from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.store.engine.store import Store
from rowlock.store.jobs import leases
from rowlock.store.read import job_logs
from rowlock.store.read.job_logs import KEPT, MOST_TEXT, NewLine
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping

log = logging.getLogger("rowlock.worker")

PHASE_LIMIT = 500
PROGRESS_SECONDS = 0.25  # between two writes of progress
LINES_SECONDS = 0.5  # between two writes of log lines
MOST_WAITING = 10_000  # unwritten lines
AT_ONCE = 500  # lines in one write
Latest = tuple[LiveAttempt, int | None, str | None, str | None]  # percent, phase, message
# From a job, the function that keeps its log lines (level, message).
Keeper = Callable[[Claimed], Callable[[str, str], None]]


class ProgressBook:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest: dict[str, Latest] = {}
        self._loop = asyncio.get_running_loop()
        self._reported = asyncio.Event()

    def reporter(self, attempt: LiveAttempt) -> Report:
        """The function behind `ctx.progress` of one attempt."""
        job_id = attempt.job.id

        def report(percent: int | None, phase: str | None, message: str | None) -> None:
            if attempt.ended or attempt.reason == "lost":
                return
            before = self._latest.get(job_id)
            shown = percent if percent is not None or before is None else before[1]
            texts = [None if text is None else clean(str(text), PHASE_LIMIT) for text in (phase, message)]
            self._latest[job_id] = (attempt, shown, texts[0], texts[1])
            if before is None:
                self._loop.call_soon_threadsafe(self._reported.set)

        return report

    async def flush(self, ended: Sequence[tuple[LiveAttempt, Transition]]) -> None:
        """Write the last progress of these attempts, before their outcomes are written."""
        if self._latest:
            ids = [attempt.job.id for attempt, _ in ended]
            if batch := [self._latest.pop(job_id) for job_id in ids if job_id in self._latest]:
                await self._write(batch)

    async def _write(self, batch: list[Latest]) -> list[LiveAttempt]:
        """Write progress, fenced by the leases. Returns the attempts that have lost theirs."""
        rows = [(attempt.job.id, attempt.token, percent, phase, text) for attempt, percent, phase, text in batch]
        held = await self._store.run(leases.progress(rows))
        return [latest[0] for latest in batch if latest[0].job.id not in held]

    async def round(self, stopping: Stopping) -> float:
        """Wait for progress and write it. Stop the attempts whose leases turn out to be lost. If the write fails, the
        progress is dropped. Returns the delay before the next round."""
        await self._reported.wait()
        self._reported.clear()
        batch, self._latest = list(self._latest.values()), {}
        if not batch:
            return 0.0
        stopping.lost(await self._write(batch))
        return PROGRESS_SECONDS


@dataclass(slots=True)
class _Waiting:
    """The unwritten lines of one job: when, attempt, level, text."""

    lines: deque[tuple[float, int, str, str]] = field(default_factory=deque)
    lost: int = 0  # how many earlier lines were dropped

    def lose_one(self) -> None:
        self.lines.popleft()
        self.lost += 1


class JobLines:
    """Unwritten log lines. A job that logs too much drops its own oldest lines, which would not be kept anyway, instead
    of lines of other jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, _Waiting] = {}  # by job
        self._count, self._lock = 0, threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None

    def keeper(self, job: Claimed) -> Callable[[str, str], None]:
        """The function behind `ctx.log` of one attempt."""

        def keep(level: str, message: str) -> None:
            line = (time.monotonic(), job.attempt, level, clean(message, MOST_TEXT))
            if self._add(job.id, line):
                self._loop.call_soon_threadsafe(self._arrived.set)

        return keep

    def _add(self, job_id: str, line: tuple[float, int, str, str]) -> bool:
        """Queue a line; returns whether the queue was empty."""
        with self._lock:
            own = self._waiting.setdefault(job_id, _Waiting())
            own.lines.append(line)
            self._count += 1
            if len(own.lines) > KEPT:
                own.lose_one()
                self._count -= 1
            elif self._count > MOST_WAITING:
                max(self._waiting.values(), key=lambda one: len(one.lines)).lose_one()
                self._count -= 1
            return self._count == 1

    def _take(self) -> list[NewLine]:
        """Dequeue the next lines to write, grouped by job."""
        taken, now = list[NewLine](), time.monotonic()
        with self._lock:
            while self._waiting and len(taken) < AT_ONCE:
                job_id, own = next(iter(self._waiting.items()))
                while own.lines and len(taken) < AT_ONCE:
                    at, attempt, level, text = own.lines.popleft()
                    taken.append(NewLine(job_id, attempt, now - at, level, text, own.lost))
                    own.lost = 0
                if not own.lines:
                    del self._waiting[job_id]
            self._count -= len(taken)
        return taken

    async def round(self) -> float:
        """Wait for lines and write them. Returns the delay before the next round."""
        await self._arrived.wait()
        self._arrived.clear()
        # A stop of the worker cancels this round but must not cancel the write: its lines have left the queue.
        self._writing = asyncio.ensure_future(self._write())
        await asyncio.shield(self._writing)
        return LINES_SECONDS

    async def flush(self) -> None:
        """Finish the current write, then write the rest."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._write()

    async def _write(self) -> None:
        """Write all lines. Lines that cannot be written are dropped: they must not hold up the jobs."""
        while lines := self._take():
            try:
                await self._store.run(job_logs.write(lines))
            except StoreError as error:
                log.warning("%d log lines of jobs were not written: %s", len(lines), error)
