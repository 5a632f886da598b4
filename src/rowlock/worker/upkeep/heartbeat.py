"""Heartbeats, in a thread and on a connection of their own, so that a handler that blocks the event loop keeps its job.

The heartbeat thread also stops handlers in time. If it could not reach the database, leases run out, and another worker
may claim their jobs; the handlers are stopped one beat before that. Time is CLOCK_BOOTTIME, which also counts while the
machine sleeps.
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

WARN_SECONDS = 1.0  # that the worker's event loop has not turned
BLOCKED_SECONDS = 10.0  # an event loop that has not turned for this long is taken for dead
LOCKED_ROWS = 3  # row locks that are waited for side by side; each takes one of the heart's four connections
WATCH_SECONDS = 0.2  # between checks of leases that run out and of the event loop
TICK_SECONDS = 0.25  # between two looks at the time in the event loop
WINDOW_SECONDS = 15.0  # the longest lag is remembered for one to two windows


class Heart:
    """Renews the leases of one worker. Has an attempt stopped if its lease is lost or may be, or its job was
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
        self.in_touch_since = boottime()  # since when every beat has reached the database
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._over = asyncio.Event()  # ends the sleep of the heartbeat thread
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._in_line = asyncio.Semaphore(LOCKED_ROWS)
        self._standing: set[str] = set()  # jobs whose row lock a statement of ours is waiting for
        self._beat_at = time.monotonic()
        self.lag = LoopLag(self._loop)
        self.beats = 0
        self._thread = threading.Thread(target=self._run, name="rowlock-heart", daemon=True)

    def start(self) -> None:
        self._own_loop = asyncio.new_event_loop()  # here, so that a worker which cannot have one does not start
        self.lag.tick()
        self._thread.start()

    # --- what metrics and probes read, in their own thread

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
        return "the thread of the heartbeats has ended" if ended else None

    def ready(self) -> str | None:
        """Why the worker takes no jobs; None if it does."""
        if self._slots.closed:
            return "stopping"
        if self._thread.ident is None:
            return "starting"
        if (age := time.monotonic() - self._beat_at) > self._lease:
            return f"the database has not been reached for {age:.0f} s"
        return self.live()

    # --- the end

    async def stop(self) -> None:
        """Send no more heartbeats; leases that are still held run out."""
        self._stop.set()
        self.lag.timer.cancel()
        with contextlib.suppress(RuntimeError):  # its loop has ended already
            self._own_loop.call_soon_threadsafe(self._over.set)
        await asyncio.to_thread(self._thread.join, 10)

    def _tell(self, what: Callable[[list[LiveAttempt]], None], attempts: list[LiveAttempt]) -> None:
        """Call a method of `Stopping` in the worker's own thread."""
        if attempts and not self._stop.is_set():
            self._loop.call_soon_threadsafe(what, attempts)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._own_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        beats = self._own_loop.create_task(self._beat_until_stopped())
        await self._watch_until_stopped()
        beats.cancel()
        await asyncio.gather(beats, *self._waiting.values(), return_exceptions=True)

    async def _watch_until_stopped(self) -> None:
        """Stop attempts whose lease was not renewed, and watch the worker's event loop. Not in the loop of the beats,
        which may hang with the network."""
        warned = False
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(WATCH_SECONDS, self._beat_seconds / 4)):
                    await self._over.wait()
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
                except Exception as error:  # of any kind: without heartbeats this worker would lose every job
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
            self._outage.failed("heart", StoreUnavailable(f"no beat in {self._beat_seconds:g} s"))
        elif isinstance(error, (StoreUnavailable, StorageFull)):
            self._outage.failed("heart", error)
        else:
            level = logging.WARNING if isinstance(error, (RowlockError, OSError)) else logging.ERROR
            log.log(level, "heartbeat failed, trying again: %r", error)

    async def _open(self) -> Store:
        # One try only: the next beat is the repeat.
        options = self._app.store_options(
            connections=LOCKED_ROWS + 1, name="rowlock-heart", command_timeout=self._beat_seconds, repeats=1
        )
        return await open_store(self._app.database, options)

    async def _beat(self, store: Store) -> None:
        """One beat: renew the leases that are older than a beat, then ask about all of them."""
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
            still = await store.run(leases.held(_keys(held)))  # by job id, with whether a cancel is requested
            gone = [attempt for attempt in held if attempt.job.id not in still and not attempt.ended]
            # The handler's own transaction may have settled the job, a moment before the attempt ends.
            lost = [one for one in gone if not await store.run(leases.settled_by(one.job.id, one.token))]
            self._tell(self._stopping.lost, lost)
            self._tell(self._stopping.cancelled, [attempt for attempt in held if still.get(attempt.job.id)])
            for attempt in due:
                if attempt.job.id in still and attempt.job.id not in renewed:
                    self._row_is_locked(store, attempt, sent)
        seen = await store.run(workers.seen(self._slots.worker_id, self._slots.occupied, self._lease, resident_bytes()))
        if seen.stop is not None:
            self._loop.call_soon_threadsafe(self._on_stop, seen.stop)
        if not seen.there:
            # The row was removed: this worker was out of touch for so long that it was believed dead.
            await self._registration.write(store)
            self._loop.call_soon_threadsafe(self._claimer.forgotten)
        self._beat_at = time.monotonic()
        self.beats += 1

    def _row_is_locked(self, store: Store, attempt: LiveAttempt, sent: float) -> None:
        """The beat skipped this row because it is locked: wait for the lock while the next beats go on."""
        job_id = attempt.job.id
        if job_id not in self._waiting:
            self._waiting[job_id] = asyncio.ensure_future(self._wait_for_row(store, attempt))
        if job_id in self._standing or len(self._waiting) <= LOCKED_ROWS:
            attempt.renewed = sent  # a sweeper skips locked rows, and ours is the next lock: it need not be stopped

    async def _wait_for_row(self, store: Store, attempt: LiveAttempt) -> None:
        """Wait in line for the lock of a job's row: when it is released, the lease may have run out, and a sweeper must
        not come first."""
        job_id = attempt.job.id
        try:
            while self._slots.holds(attempt):
                async with self._in_line:
                    sent = boottime()
                    self._standing.add(job_id)
                    try:
                        if await store.run(leases.beat_waiting(job_id, attempt.token, self._lease)):
                            attempt.renewed = sent
                        return
                    except RowlockError:
                        pass  # a lock timeout: wait for the lock again
                    finally:
                        self._standing.discard(job_id)
                # Pause: with a short lock_timeout, or without a database, the statement fails at once.
                await asyncio.sleep(max(0.0, sent + min(1.0, self._beat_seconds / 4) - boottime()))
        finally:
            self._waiting.pop(job_id, None)

    def _held_now(self) -> list[LiveAttempt]:
        return list(self._slots.held.copy().values())  # dict.copy is atomic; the worker's thread changes it

    def _stop_unrenewed(self) -> None:
        """Stop attempts whose lease was not renewed for so long that it may soon be another worker's."""
        limit = boottime() - (self._lease - self._beat_seconds)
        unsure = [attempt for attempt in self._held_now() if attempt.renewed < limit and not attempt.unrenewed]
        for attempt in unsure:
            attempt.unrenewed = True
        self._tell(self._stopping.unrenewed, unsure)

    def _watch_loop(self, warned: bool) -> bool:
        """Warn once, with the names of the running tasks, when a handler blocks the event loop."""
        still = self.lag.blocked_for
        if still > WARN_SECONDS and not warned:
            tasks = ", ".join(sorted({attempt.job.task for attempt in self._held_now() if attempt.task})) or "none"
            log.warning("the event loop has not turned for %.1f s; an async handler blocks it: %s", still, tasks)
        return still > WARN_SECONDS


def _keys(attempts: list[LiveAttempt]) -> list[tuple[str, str]]:
    return [(attempt.job.id, attempt.token) for attempt in attempts]


class LoopLag:
    """How late an event loop runs its timers, seen by a timer that starts itself again. Other threads read it, also
    while a handler blocks the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticked = self._window = time.monotonic()
        self._longest = self._longest_before = 0.0  # lags in this window and in the one before

    def tick(self) -> None:
        """Note how late this timer is, and start it again. Called in the loop's own thread, first to begin."""
        now = time.monotonic()
        late, self._ticked = self.blocked_for, now
        if now - self._window > WINDOW_SECONDS:
            self._longest, self._longest_before, self._window = 0.0, self._longest, now
        self._longest = max(self._longest, late)
        self.timer = self._loop.call_later(TICK_SECONDS, self.tick)

    @property
    def blocked_for(self) -> float:
        """Seconds for which the loop has not turned, beyond what is usual."""
        return max(0.0, time.monotonic() - self._ticked - TICK_SECONDS)

    @property
    def longest(self) -> float:
        """The longest lag of the last seconds, the one that is under way included."""
        return max(self._longest, self._longest_before, self.blocked_for)
