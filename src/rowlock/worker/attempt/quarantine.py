"""Suspects: jobs whose worker died and that have not come back since (`core.policy.suspect`). One suspect at a time
runs in the quarantine child: if the child dies, that job did it. The other suspects wait without a slot, so that they
take no place from jobs that are not suspect.

A waiting suspect has a lease, and a place in its source's concurrency, that another worker could use. So it waits for
ten seconds at most. Then it is released, without using up a try. The delay of the release grows with the time that the
running suspect has taken so far, from half a second to five minutes: waiting suspects must not be claimed and released
again and again while one of them takes an hour.
"""

from __future__ import annotations

import asyncio
import random
import time

from rowlock.core.outcome import Released
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.settle.settler import Settler

MOST = 100  # waiting suspects; more are released. A dead worker may have prefetched hundreds of short jobs
LONGEST_SECONDS = 10.0  # that a suspect waits
DELAYS = (0.5, 300.0)  # of a release, in seconds: at least and at most


class Suspects:
    """The suspects of one worker: at most one runs, the others wait for it to end."""

    def __init__(self, slots: Slots, settler: Settler) -> None:
        self.waiting, self._settler = slots.suspects, settler
        self._running: LiveAttempt | None = None
        self._mean = 0.0  # moving average of the seconds that a suspect took
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, attempt: LiveAttempt) -> None:
        """Let a claimed suspect wait for its turn."""
        attempt.started = time.monotonic()
        if len(self.waiting) >= MOST:
            self._release(attempt)
            return
        self.waiting.append(attempt)
        self._alarm = self._alarm or asyncio.get_running_loop().call_later(LONGEST_SECONDS, self._waited_too_long)

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

    def close(self) -> None:
        """The worker stops; it releases the waiting suspects itself."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _waited_too_long(self) -> None:
        self._alarm = None
        now = time.monotonic()
        while self.waiting and self.waiting[0].started <= now - LONGEST_SECONDS + 0.01:
            self._release(self.waiting.popleft())
        if self.waiting:
            left = self.waiting[0].started + LONGEST_SECONDS - now
            self._alarm = asyncio.get_running_loop().call_later(left, self._waited_too_long)

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
