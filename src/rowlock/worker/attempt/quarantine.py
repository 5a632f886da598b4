"""Quarantine for suspects: jobs whose worker died and that have not come back since (`core.policy.suspect`)."""

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

MOST = 100  # waiting suspects; more are released. A dead worker may have prefetched hundreds of short jobs
LONGEST_SECONDS = 10.0  # that a suspect waits
DELAYS = (0.5, 300.0)  # of a release, in seconds: at least and at most
ALONE_SECONDS = 0.02  # between looks at whether all other attempts have returned


class Suspects:
    """The suspects of one worker.

    One at a time runs, in the quarantine child: if the child dies, that job did it. The others wait without a slot, so
    they take no place from innocent jobs. But a waiting suspect holds a lease, and a place in its source's concurrency,
    that another worker could use. So after ten seconds it is released, without using an attempt. The release's delay
    grows with the time that the running suspect has taken, from half a second to five minutes, so that suspects aren't
    claimed and released over and over while one of them runs for an hour.
    """

    def __init__(self, slots: Slots, settler: Settler, claimer: Claimer, children: Children) -> None:
        self.waiting, self._slots, self._settler, self._claimer = slots.suspects, slots, settler, claimer
        self._children = children  # one: the quarantine child
        self._running: LiveAttempt | None = None
        self._mean = 0.0  # moving average of the seconds that a suspect took

    def add(self, attempt: LiveAttempt) -> None:
        """Let a claimed suspect wait for its turn."""
        attempt.started = time.monotonic()
        if len(self.waiting) >= MOST:
            self._release(attempt)
            return
        self.waiting.append(attempt)
        asyncio.get_running_loop().call_later(LONGEST_SECONDS, self._waited_too_long, attempt)

    def next(self) -> LiveAttempt | None:
        """The suspect that may run now, or None."""
        while self.waiting and self._running is None:
            attempt = self.waiting.popleft()
            if not attempt.ended:  # cancelled or lost while it waited
                self._running = attempt
                return attempt
        return None

    def returned(self, attempt: LiveAttempt) -> None:
        """An attempt has returned; if it was the running suspect, the next suspect may run."""
        if attempt is self._running:
            self._mean += 0.3 * (time.monotonic() - attempt.started - self._mean)
            self._running = None

    async def run(self, attempt: LiveAttempt, task: AnyTask, report: Report, usual: Run) -> AttemptEnd | None:
        """Run a suspect in the quarantine child, whatever its task's `runs_in`: if the child dies, the suspect is
        convicted. A task that no child process can import runs as `usual`, with no other attempt beside it."""
        try:
            return await self._children.run_or_raise(attempt, task, report)
        except ChildDied as death:
            detail = f"its quarantine process {death.told}"
            return death.asked_for(attempt.job) or Lost(convicted=True, detail=detail)
        except (NotImportable, NotStarted) as error:
            job = attempt.job
            text = "Job %s (%s) runs alone in its worker, not in quarantine: %s"
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
        # Not before the suspects ahead of it have run, else it would be claimed and released again and again.
        ahead = len(self.waiting) * max(self._mean, so_far)
        delay = min(max(so_far / 2, ahead, least), most) * random.uniform(0.5, 1.0)
        if not attempt.ended:  # by a cancel, or a lost lease
            attempt.ended, attempt.started = True, time.monotonic()
            why = "the quarantine process of its worker is busy with another job"
            self._settler.settle(attempt, Released(delay, why, "stopped"))
