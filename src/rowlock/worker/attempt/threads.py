"""Threads in which a worker calls functions that aren't async."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.classify import Overran


class SlotThreads:
    """A pool of up to `size` threads, started when needed and reused.

    Unlike the threads of concurrent.futures they are daemons: at exit Python waits for non-daemon threads, so a handler
    that never returns would keep a stopped worker alive.
    """

    def __init__(self, size: int) -> None:
        self._size, self._started, self._free = size, 0, 0
        self._inbox: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    async def call(self, attempt: LiveAttempt, function: Callable[[], Any]) -> Any:
        """Call a handler's function. A thread cannot be killed, so after its timeout the attempt is asked to stop and
        keeps its lease until the function returns."""
        timeout, began = attempt.job.timeout_seconds, time.monotonic()
        loop = asyncio.get_running_loop()
        work: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        if self._free == 0 and self._started < self._size:
            threading.Thread(target=self._work, args=(loop,), name="rowlock-slot", daemon=True).start()
            self._started += 1  # only now: a thread that the system refused to start must not count
        else:
            self._free -= 1
        self._inbox.put((work, function))
        alarm = loop.call_later(timeout, attempt.stop, "timeout") if timeout is not None else None
        try:
            while not work.done():
                try:
                    await asyncio.shield(work)
                except asyncio.CancelledError:
                    if work.cancelled() or attempt.abandoned:
                        raise
        finally:
            if alarm is not None:
                alarm.cancel()
        if timeout is not None and time.monotonic() - began > timeout:
            raise Overran(timeout)
        value, error = work.result()
        if error is not None:
            raise error
        return value

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (given := self._inbox.get()) is not None:
            answer, function = given
            value = returned_or_raised(function)
            try:
                loop.call_soon_threadsafe(self._done, answer, value)
            except RuntimeError:  # the worker and its loop are gone
                return

    def _done(self, answer: asyncio.Future[Any], value: Any) -> None:
        self._free += 1
        if not answer.done():
            answer.set_result(value)

    def close(self) -> None:
        """Let idle threads end; busy ones end with the process."""
        for _ in range(self._started):
            self._inbox.put(None)


def returned_or_raised(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """(value, None) or (None, error). The error must not become the future's exception: asyncio refuses StopIteration
    there, and the attempt would wait for ever."""
    try:
        return function(), None
    except BaseException as error:
        return None, error
