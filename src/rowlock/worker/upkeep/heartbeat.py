"""Heartbeats run in their own thread with their own connections, so a handler that blocks the event loop keeps its job.

The heartbeat thread also stops handlers in time. While it cannot reach the database, leases run out and other workers
may claim the jobs, so it stops the handlers one heartbeat before that. Time is CLOCK_BOOTTIME, which goes on while the
machine is suspended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable

from rowlock.client.client import Client
from rowlock.core.errors import RowlockError, StorageFull, StoreUnavailable
from rowlock.signals.metrics import Sample, Samples
from rowlock.store import Store, open_store, workers
from rowlock.store.engine.clock import boottime
from rowlock.store.engine.outage import Outage
from rowlock.store.jobs import leases
from rowlock.store.workers import StopHow
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer
from rowlock.worker.registration import Registration, resident_bytes

log = logging.getLogger("rowlock.worker")

WARN_SECONDS = 1.0  # warn if the worker's event loop has been blocked for this long
BLOCKED_SECONDS = 10.0  # an event loop that has been blocked for this long counts as dead
LOCKED_ROWS = 3  # row locks to wait for concurrently; each wait takes one of the heart's four connections
WATCH_SECONDS = 0.2  # between checks of the leases and of the event loop
TICK_SECONDS = 0.25  # interval of the timer that measures the event loop's lag
WINDOW_SECONDS = 15.0  # the longest lag is remembered for one to two windows


class Heart:
    """Renews the leases of one worker. Stops an attempt if its lease is lost or may soon be, or if its job was
    cancelled."""

    def __init__(
        self,
        app: Client,
        slots: Slots,
        stopping: Stopping,
        registration: Registration,
        outage: Outage,
        claimer: Claimer,
        on_stop: Callable[[StopHow], None],
    ) -> None:
        self._app, self._slots, self._stopping, self._registration = app, slots, stopping, registration
        self._beat_seconds = registration.settings.heartbeat_seconds
        self._lease = registration.settings.lease_seconds
        self._outage, self._claimer, self._on_stop = outage, claimer, on_stop
        self.in_touch_since = boottime()  # every beat since then has reached the database
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._stop_wakeup = asyncio.Event()  # ends the sleep of the heartbeat thread
        self._waiting: dict[str, asyncio.Future[None]] = {}  # by job id, for jobs whose row is locked
        self._lock_waits = asyncio.Semaphore(LOCKED_ROWS)
        self._awaiting_row_lock: set[str] = set()  # jobs whose row lock one of our statements is waiting for
        self._beat_at = time.monotonic()
        self.lag = LoopLag(self._loop)
        self.beats = 0
        self._thread = threading.Thread(target=self._run, name="rowlock-heart", daemon=True)

    def start(self) -> None:
        self._own_loop = asyncio.new_event_loop()  # here, so that the worker's start fails if this does
        self.lag.tick()
        self._thread.start()

    # --- read by metrics and probes, from another thread

    def samples(self) -> Samples:
        busy, size = min(self._slots.occupied, self._slots.size), self._slots.size
        return {
            "rowlock_slots": [Sample(("busy",), busy), Sample(("free",), size - busy)],
            "rowlock_worker_heartbeat_age_seconds": [Sample((), time.monotonic() - self._beat_at)],
            "rowlock_loop_lag_seconds": [Sample((), self.lag.longest)],
        }

    def live(self) -> str | None:
        """What is wrong with the process; None if nothing is."""
        if (lag := self.lag.blocked_for) > BLOCKED_SECONDS:
            return f"the event loop has not turned for {lag:.0f} s"
        ended = self._thread.ident is not None and not self._thread.is_alive()
        return "the heartbeat thread has died" if ended else None

    def ready(self) -> str | None:
        """Why the worker claims no jobs; None if it does."""
        if self._slots.closed:
            return "stopping"
        if self._thread.ident is None:
            return "starting"
        if (age := time.monotonic() - self._beat_at) > self._lease:
            return f"the database has not been reached for {age:.0f} s"
        return self.live()

    # --- the end

    async def stop(self) -> None:
        """Send no more heartbeats. Leases that are still held run out."""
        self._stop.set()
        self.lag.timer.cancel()
        with contextlib.suppress(RuntimeError):  # its loop has ended already
            self._own_loop.call_soon_threadsafe(self._stop_wakeup.set)
        await asyncio.to_thread(self._thread.join, 10)

    def _call_in_worker(self, function: Callable[[list[LiveAttempt]], None], attempts: list[LiveAttempt]) -> None:
        """Call a method of `Stopping` in the worker's main thread."""
        if attempts and not self._stop.is_set():
            self._loop.call_soon_threadsafe(function, attempts)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._own_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        beats = self._own_loop.create_task(self._beat_until_stopped())
        await self._watch_until_stopped()
        beats.cancel()
        await asyncio.gather(beats, *self._waiting.values(), return_exceptions=True)

    async def _watch_until_stopped(self) -> None:
        """Stop attempts whose lease was not renewed, and watch the worker's event loop. Separate from the beats, which
        hang when the network does."""
        warned = False
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(WATCH_SECONDS, self._beat_seconds / 4)):
                    await self._stop_wakeup.wait()
            self._stop_unrenewed()
            warned = self._watch_loop(warned)

    async def _beat_until_stopped(self) -> None:
        store: Store | None = None
        next_beat = time.monotonic() + self._beat_seconds
        try:
            while True:
                await asyncio.sleep(max(0.0, next_beat - time.monotonic()))
                try:
                    async with asyncio.timeout(self._beat_seconds):
                        store = store or await self._open()
                        await self._beat(store)
                    self.in_touch_since = min(self.in_touch_since, boottime())
                    next_beat = max(next_beat + self._beat_seconds, time.monotonic())
                except Exception as error:  # any kind: without heartbeats this worker would lose all its jobs
                    self._report(error)
                    self.in_touch_since = math.inf
                    next_beat = time.monotonic() + random.uniform(0.2, 1.0) * min(1.0, self._beat_seconds / 4)
        finally:
            for waiting in self._waiting.values():
                waiting.cancel()
            if store is not None:
                await store.close()

    def _report(self, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            self._outage.failed("heart", StoreUnavailable(f"no answer to a heartbeat in {self._beat_seconds:g} s"))
        elif isinstance(error, (StoreUnavailable, StorageFull)):
            self._outage.failed("heart", error)
        else:
            level = logging.WARNING if isinstance(error, (RowlockError, OSError)) else logging.ERROR
            log.log(level, "heartbeat failed, trying again: %r", error)

    async def _open(self) -> Store:
        # Connect once only: the next beat tries again.
        options = self._app.store_options(
            connections=LOCKED_ROWS + 1, name="rowlock-heart", command_timeout=self._beat_seconds, repeats=1
        )
        return await open_store(self._app.database, options)

    async def _beat(self, store: Store) -> None:
        """One heartbeat: renew the leases that were not renewed for one interval, then check all of them."""
        sent = boottime()
        held = [attempt for attempt in self._held_now() if not attempt.unrenewed]
        due = [attempt for attempt in held if sent - attempt.renewed >= self._beat_seconds * 0.9]
        renewed: set[str] = set()
        if due:
            renewed = await store.run(leases.beat(_keys(due), self._lease))
        for attempt in due:
            if attempt.job.id in renewed:
                attempt.renewed = sent
        if held:
            still = await store.run(leases.held(_keys(held)))  # job id -> whether a cancel is requested
            gone = [attempt for attempt in held if attempt.job.id not in still and not attempt.ended]
            # Not lost if the handler's own transaction has just settled the job and the attempt is about to end.
            lost = [one for one in gone if not await store.run(leases.settled_by(one.job.id, one.token))]
            self._call_in_worker(self._stopping.lost, lost)
            self._call_in_worker(self._stopping.cancelled, [attempt for attempt in held if still.get(attempt.job.id)])
            for attempt in due:
                if attempt.job.id in still and attempt.job.id not in renewed:
                    self._row_is_locked(store, attempt, sent)
        seen = await store.run(workers.seen(self._slots.worker_id, self._slots.occupied, self._lease, resident_bytes()))
        if seen.stop is not None:
            self._loop.call_soon_threadsafe(self._on_stop, seen.stop)
        if not seen.there:
            # Another worker removed our row because we were out of touch for so long that we looked dead.
            await self._registration.write(store)
            self._loop.call_soon_threadsafe(self._claimer.forgotten)
        self._beat_at = time.monotonic()
        self.beats += 1

    def _row_is_locked(self, store: Store, attempt: LiveAttempt, sent: float) -> None:
        """The beat skipped this row because it is locked: wait for the lock in the background, beside further beats."""
        job_id = attempt.job.id
        if job_id not in self._waiting:
            self._waiting[job_id] = asyncio.ensure_future(self._wait_for_row(store, attempt))
        if job_id in self._awaiting_row_lock or len(self._waiting) <= LOCKED_ROWS:
            # The lease is safe, so the attempt may go on: sweepers skip locked rows, and we get the lock next.
            attempt.renewed = sent

    async def _wait_for_row(self, store: Store, attempt: LiveAttempt) -> None:
        """Queue for the lock of a job's row. When the row is unlocked its lease may have run out, so this renewal must
        get the lock before a sweeper does."""
        job_id = attempt.job.id
        try:
            while self._slots.holds(attempt):
                async with self._lock_waits:
                    sent = boottime()
                    self._awaiting_row_lock.add(job_id)
                    try:
                        if await store.run(leases.beat_waiting(job_id, attempt.token, self._lease)):
                            attempt.renewed = sent
                        return
                    except RowlockError:
                        pass  # a lock timeout: wait for the lock again
                    finally:
                        self._awaiting_row_lock.discard(job_id)
                # Pause before the next try: with a short lock_timeout or a dead database, each fails at once.
                await asyncio.sleep(max(0.0, sent + min(1.0, self._beat_seconds / 4) - boottime()))
        finally:
            self._waiting.pop(job_id, None)

    def _held_now(self) -> list[LiveAttempt]:
        return list(self._slots.held.copy().values())  # dict.copy is atomic, and the main thread changes `held`

    def _stop_unrenewed(self) -> None:
        """Stop attempts whose lease was not renewed for so long that another worker may soon own it."""
        limit = boottime() - (self._lease - self._beat_seconds)
        unsure = [attempt for attempt in self._held_now() if attempt.renewed < limit and not attempt.unrenewed]
        for attempt in unsure:
            attempt.unrenewed = True
        self._call_in_worker(self._stopping.unrenewed, unsure)

    def _watch_loop(self, warned: bool) -> bool:
        """Warn once per blockage, with the names of the running tasks, when a handler blocks the event loop."""
        blocked = self.lag.blocked_for
        if blocked > WARN_SECONDS and not warned:
            tasks = ", ".join(sorted({attempt.job.task for attempt in self._held_now() if attempt.task})) or "none"
            text = "the event loop has not turned for %.1f s; an async handler blocks it. Running tasks: %s"
            log.warning(text, blocked, tasks)
        return blocked > WARN_SECONDS


def _keys(attempts: list[LiveAttempt]) -> list[tuple[str, str]]:
    return [(attempt.job.id, attempt.token) for attempt in attempts]


class LoopLag:
    """Measures with a repeating timer how late an event loop runs its timers. Other threads read it, even while a
    handler blocks the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticked = self._window = time.monotonic()
        self._longest = self._longest_before = 0.0  # in this window and in the one before

    def tick(self) -> None:
        """Record how late the timer is, and restart it. The first call starts it, in the loop's own thread."""
        now = time.monotonic()
        late, self._ticked = self.blocked_for, now
        if now - self._window > WINDOW_SECONDS:
            self._longest, self._longest_before, self._window = 0.0, self._longest, now
        self._longest = max(self._longest, late)
        self.timer = self._loop.call_later(TICK_SECONDS, self.tick)

    @property
    def blocked_for(self) -> float:
        """Seconds by which the timer is overdue."""
        return max(0.0, time.monotonic() - self._ticked - TICK_SECONDS)

    @property
    def longest(self) -> float:
        """The longest recent lag, including the current one."""
        return max(self._longest, self._longest_before, self.blocked_for)
