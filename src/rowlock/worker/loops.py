"""The loops of a worker: each repeats a round, which returns the delay before the next round."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from rowlock.core.errors import StorageFull, StoreError, StoreUnavailable
from rowlock.store.engine.outage import Outage

log = logging.getLogger("rowlock.worker")

Round = Callable[[], Awaitable[float]]
GIVE_UP_AFTER = 20  # unexpected errors in a row; then the process ends, and a supervisor restarts it


class Loops:
    """Named loops and background tasks of one worker, all strongly referenced."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._loose: set[asyncio.Task[Any]] = set()
        self._finishing: set[str] = set()
        self._event_loop: asyncio.AbstractEventLoop | None = None
        outage.wake_when_back(self)

    def start(self, name: str, round_: Round, wake: asyncio.Event | None = None, *, vital: bool = True) -> None:
        """Repeat `round_` until stopped. Setting `wake` ends the delay between two rounds. Errors in a loop that is not
        vital never end the process."""
        wake = self._wakes[name] = wake or asyncio.Event()
        self._event_loop = asyncio.get_running_loop()
        work = self._repeat(name, round_, wake, vital)
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=f"rowlock-{name}")

    async def _repeat(self, name: str, round_: Round, wake: asyncio.Event, vital: bool) -> None:
        failures = 0
        while name not in self._finishing:
            try:
                delay = await round_()
                failures = 0
            except StoreError as error:
                delay = min(5.0, 0.1 * 2 ** min(failures, 6)) * random.uniform(0.5, 1.0)
                failures += 1
                self._report(name, error, f"; trying again in {delay:.1f} s")
            except Exception:
                failures += 1
                log.exception("%s: unexpected error", name)
                if vital and failures >= GIVE_UP_AFTER:
                    raise
                delay = min(5.0, 0.1 * 2 ** min(failures, 6))
            if delay > 0 and name not in self._finishing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await wake.wait()
            wake.clear()

    def database_is_back(self) -> None:
        """This process has reached the database again: start the next round of every loop without further delay."""
        if self._event_loop is not None:
            with suppress(RuntimeError):  # the event loop is closed
                self._event_loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for wake in self._wakes.values():
            wake.set()

    def _report(self, what: str, error: BaseException, follows: str = "") -> None:
        if isinstance(error, (StoreUnavailable, StorageFull)):
            self._outage.failed(what, error)
        else:
            log.warning("%s: %s%s", what, error, follows)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background; an error is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._loose.add(task)
        task.add_done_callback(self._drop)

    def _drop(self, task: asyncio.Task[Any]) -> None:
        self._loose.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report("background work", error)

    async def finish(self, name: str, timeout: float) -> None:
        """End a loop after its current round. A claim that is cut off could leave the worker with leases of jobs that
        it does not know of."""
        task = self._tasks.pop(name, None)
        if task is None:
            return
        self._finishing.add(name)
        self._wakes[name].set()
        await asyncio.wait({task}, timeout=timeout)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop_all(self) -> None:
        """Stop everything. If a library swallows the CancelledError (a Redis client did), its loop ends after the
        round."""
        self._finishing.update(self._tasks)
        tasks = [*self._tasks.values(), *self._loose]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def join(self) -> None:
        """Wait until all loops are stopped; raises the error that ended one."""
        if self._tasks:
            ended, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
            for task in ended:
                if not task.cancelled():
                    task.result()


async def to_the_end(work: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
    """Wait until `work` ends, even if the caller is cancelled meanwhile; then raise the cancellation."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
