"""Heartbeats, in a thread and on a connection of their own, so that a handler that blocks the event loop keeps its job.

The same thread fences the worker: when it cannot reach the database for so long that a lease may run out, the handlers
are stopped before anybody else can own their jobs. Time is CLOCK_BOOTTIME, which goes on while the machine sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from rowlock.core.errors import RowlockError, StorageFull, StoreUnavailable
from rowlock.store import jobs, workers
from rowlock.store.engine import Store, open_store
from rowlock.store.outage import Outage

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

log = logging.getLogger("rowlock.worker")

LAG_SECONDS = 1.0
LOCKED_ROWS = 3  # that are waited for at the same time: each takes one of the heart's four connections
WATCH_SECONDS = 0.2  # between looks at leases that run out and at the loop
Lease = tuple[str, str]  # job id, token


def boottime() -> float:
    """Seconds that also pass while the machine is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Hold(Protocol):
    """One lease that this worker has, and when it was last renewed (the moment of sending, to be safe)."""

    token: str
    renewed: float
    fenced: bool


class Heart:
    """Beats for every lease of one worker, and says which are lost, cancelled or no longer sure."""

    def __init__(
        self,
        app: Rowlock,
        worker: str,
        holds: Mapping[str, Hold],
        *,
        beat: float,
        lease: float,
        on_lost: Callable[[list[Lease]], None],
        on_cancel: Callable[[list[Lease]], None],
        on_fence: Callable[[list[Lease]], None],
        on_forgotten: Callable[[], None],
        outage: Outage,
        running: Callable[[], int],
        names: Callable[[], str],
    ) -> None:
        self._holds = holds  # by job id; changed by the worker's thread, copied before each look
        self._app, self._worker, self._beat_seconds, self._lease = app, worker, beat, lease
        self._on_lost, self._on_cancel, self._on_fence = on_lost, on_cancel, on_fence
        self._on_forgotten, self._running, self._names = on_forgotten, running, names
        self._outage = outage
        self.in_touch_since = boottime()  # since when every beat has reached the database
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._wake: Callable[[], object] | None = None  # its thread, to stop at once
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._in_line = asyncio.Semaphore(LOCKED_ROWS)
        self._standing: set[str] = set()  # whose rows we are next in line for
        self._ticked = time.monotonic()
        self.beats = 0
        self._thread = threading.Thread(target=self._run, name="rowlock-heart", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._own_loop = asyncio.new_event_loop()  # here, so that a worker which cannot have one does not start
        self._tick()
        self._thread.start()

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        if not self._stop.is_set():
            self._loop.call_later(LAG_SECONDS / 4, self._tick)

    async def stop(self) -> None:
        """Stop beating; leases still held are left to their time."""
        self._stop.set()
        if self._wake is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended already
                self._wake()
        await asyncio.to_thread(self._thread.join, 10)

    def _tell(self, what: Callable[[list[Lease]], None], leases: list[Lease]) -> None:
        if leases and not self._stop.is_set():
            self._loop.call_soon_threadsafe(what, leases)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._own_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(over.set)
        beats = loop.create_task(self._beat_until_stopped())
        await self._watch_until_stopped(over)
        beats.cancel()
        await asyncio.gather(beats, *self._waiting.values(), return_exceptions=True)

    async def _watch_until_stopped(self, over: asyncio.Event) -> None:
        """Fence and watch the worker's event loop; apart from the beats, which may hang with the network."""
        warned = False
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(WATCH_SECONDS, self._beat_seconds / 4)):
                    await over.wait()
            self._fence()
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
                except Exception as error:  # whatever it was: a heart that stops beating loses every job
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
        # No repeats of its own: the next beat is the repeat.
        options = self._app.store_options(
            connections=LOCKED_ROWS + 1, name="rowlock-heart", command_timeout=self._beat_seconds, repeats=1
        )
        return await open_store(self._app.database, options)

    async def _beat(self, store: Store) -> None:
        """One beat: renew what is older than a beat, then ask about everything."""
        sent = boottime()
        held = [(job_id, hold) for job_id, hold in self._held_now() if not hold.fenced]
        due = [(job_id, hold) for job_id, hold in held if sent - hold.renewed >= self._beat_seconds * 0.9]
        renewed: set[str] = set()
        if due:
            renewed = await store.run(jobs.beat([(job_id, hold.token) for job_id, hold in due], self._lease))
        for job_id, hold in due:
            if job_id in renewed:
                hold.renewed = sent
        if held:
            still = await store.run(jobs.held([(job_id, hold.token) for job_id, hold in held]))
            gone = [(job_id, hold.token) for job_id, hold in held if job_id not in still]
            self._tell(self._on_lost, gone)
            self._tell(self._on_cancel, [(job_id, hold.token) for job_id, hold in held if still.get(job_id)])
            for job_id, hold in due:
                if job_id in still and job_id not in renewed:
                    if job_id not in self._waiting:
                        self._waiting[job_id] = asyncio.ensure_future(self._wait_for_row(store, job_id, hold))
                    if job_id in self._standing or len(self._waiting) <= LOCKED_ROWS:
                        hold.renewed = sent  # its row is locked and we are next: nobody can take it, no need to fence
        if not await store.run(workers.seen(self._worker, self._running(), self._lease)):
            self._loop.call_soon_threadsafe(self._on_forgotten)
        self.beats += 1

    async def _wait_for_row(self, store: Store, job_id: str, hold: Hold) -> None:
        """Somebody has locked this job's row, so the beat passed over it. Stand in line for it: when it is let go, the
        lease may have run out, and a sweeper must not come first."""
        try:
            while self._holds.get(job_id) is hold:
                async with self._in_line:
                    sent = boottime()
                    self._standing.add(job_id)
                    try:
                        if await store.run(jobs.beat_waiting(job_id, hold.token, self._lease)):
                            hold.renewed = sent
                        return
                    except RowlockError:
                        pass  # after a lock timeout: stand in line again
                    finally:
                        self._standing.discard(job_id)
                # Not more often than this, for a short lock_timeout, or no database, fails at once.
                await asyncio.sleep(max(0.0, sent + min(1.0, self._beat_seconds / 4) - boottime()))
        finally:
            self._waiting.pop(job_id, None)

    def _held_now(self) -> list[tuple[str, Hold]]:
        return list(dict(self._holds).items())  # the copy is one step of the interpreter: nobody comes between

    def _fence(self) -> None:
        """Past its local deadline a lease may be somebody else's: stop before that."""
        limit = boottime() - (self._lease - self._beat_seconds)
        unsure = []
        for job_id, hold in self._held_now():
            if hold.renewed < limit and not hold.fenced:
                hold.fenced = True
                unsure.append((job_id, hold.token))
        self._tell(self._on_fence, unsure)

    def _watch_loop(self, warned: bool) -> bool:
        """Warn once, with names, when a handler keeps the event loop from turning."""
        lag = time.monotonic() - self._ticked
        if lag > LAG_SECONDS and not warned:
            log.warning("the event loop has not turned for %.1f s; an async handler blocks it: %s", lag, self._names())
        return lag > LAG_SECONDS
