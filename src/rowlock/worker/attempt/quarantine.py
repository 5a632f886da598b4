"""Quarantine for suspects: jobs whose worker died while it ran them, and that may have killed it
(`core.policy.suspect`)."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from rowlock.client.context import Report
from rowlock.core.outcome import AttemptEnd, Lost, Released
from rowlock.signals.logs import job_fields
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.executor import AnyTask, Run
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer
from rowlock.worker.processes.children import Children
from rowlock.worker.processes.locate import NotImportable
from rowlock.worker.processes.process import ChildDied, NotStarted
from rowlock.worker.settler import Settler

log = logging.getLogger("rowlock.worker")

MOST = 100  # waiting suspects; more are released, because a dead worker may have prefetched hundreds of short jobs
LONGEST_SECONDS = 10.0  # a suspect that has waited this long is released
DELAYS = (0.5, 300.0)  # of a release, in seconds: at least and at most
ALONE_SECONDS = 0.02  # interval of checking whether all other attempts have returned


class Suspects:
    """The suspects of one worker.

    They run one at a time in the quarantine child: if the child dies, its job killed it. The rest wait outside of the
    slots, so that innocent jobs can run. But a waiting suspect holds a lease and counts against its source's
    concurrency, and another worker could run it. So after ten seconds it is released, which does not count as a try.
    The delay of the release grows with the time that the running suspect has taken, from half a second to five
    minutes: otherwise suspects would be claimed and released over and over while one of them runs for an hour.
    """

    def __init__(self, slots: Slots, settler: Settler, claimer: Claimer, children: Children) -> None:
        self.waiting, self._slots, self._settler, self._claimer = slots.suspects, slots, settler, claimer
        self._children = children  # one: the quarantine child
        self._running: LiveAttempt | None = None
        self._mean = 0.0  # moving average of the seconds that a suspect took

    def add(self, attempt: LiveAttempt) -> None:
        """Queue a claimed suspect."""
        attempt.started = time.monotonic()
        if len(self.waiting) >= MOST:
            self._release(attempt)
            return
        self.waiting.append(attempt)
        asyncio.get_running_loop().call_later(LONGEST_SECONDS, self._waited_too_long, attempt)

    def next(self) -> LiveAttempt | None:
        """The next suspect, or None while one runs or none waits."""
        while self.waiting and self._running is None:
            attempt = self.waiting.popleft()
            if not attempt.ended:  # cancelled or lost while it waited
                self._running = attempt
                return attempt
        return None

    def returned(self, attempt: LiveAttempt) -> None:
        """An attempt has returned. If it was the running suspect, `next` may hand out another."""
        if attempt is self._running:
            self._mean += 0.3 * (time.monotonic() - attempt.started - self._mean)
            self._running = None

    async def run(self, attempt: LiveAttempt, task: AnyTask, report: Report, usual: Run) -> AttemptEnd | None:
        """Run a suspect in the quarantine child, whatever its task's `runs_in`: if the child dies, the suspect is
        convicted. A task that a child process cannot import runs as `usual`, but not until all other attempts have
        returned and no more are claimed."""
        try:
            return await self._children.run_or_raise(attempt, task, report)
        except ChildDied as death:
            detail = f"its quarantine process {death.predicate}"
            return death.release(attempt.job) or Lost(convicted=True, detail=detail)
        except (NotImportable, NotStarted) as error:
            job = attempt.job
            text = "Job %s (%s) cannot run in the quarantine process and will run alone in its worker: %s"
            log.warning(text, job.id, task.name, error, extra=job_fields(job))
        with self._claimer.paused():
            while self._slots.occupied > 1:  # 1: this attempt; only one suspect runs at a time
                await asyncio.sleep(ALONE_SECONDS)
            return await usual(attempt, task)

    async def close(self) -> None:
        await self._children.close()

    def _waited_too_long(self, attempt: LiveAttempt) -> None:
        if attempt in self.waiting:
            self.waiting.remove(attempt)
            self._release(attempt)

    def _release(self, attempt: LiveAttempt) -> None:
        least, most = DELAYS
        so_far = time.monotonic() - self._running.started if self._running is not None else 0.0
        # Long enough for the suspects ahead of it to run, else it would be claimed and released again and again.
        ahead = len(self.waiting) * max(self._mean, so_far)
        delay = min(max(so_far / 2, ahead, least), most) * random.uniform(0.5, 1.0)
        if not attempt.ended:  # a cancel or a lost lease may have ended it
            attempt.ended, attempt.started = True, time.monotonic()
            why = "its worker's quarantine process is busy with another job"
            self._settler.settle(attempt, Released(delay, why, "stopped"))
