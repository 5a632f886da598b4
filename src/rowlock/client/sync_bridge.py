"""Runs coroutines for sync code, on an event loop in a background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rowlock.core.errors import InvalidArguments
from rowlock.store.engine import forking

T = TypeVar("T")
log = logging.getLogger("rowlock")

INTERRUPT_SECONDS = 2.0  # how long an interrupted caller waits for its coroutine to be cancelled


class Portal(forking.Forkable):
    """Runs coroutines for threads that wait. Its loop starts when it is first needed, once in each process."""

    def __init__(self) -> None:
        self._forget()
        forking.watch(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its value. A thread that is interrupted while it waits cancels the coroutine."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidArguments("this code runs in the loop that sync calls wait for: await the async call instead")
        try:
            loop = self._running_loop()
        except BaseException:
            work.close()
            raise
        tasks: list[asyncio.Task[Any] | None] = []
        interrupted = False

        async def carry_out() -> T:
            if interrupted:
                work.close()
                raise asyncio.CancelledError
            tasks.append(asyncio.current_task())
            return await work

        answer = asyncio.run_coroutine_threadsafe(carry_out(), loop)
        try:
            return answer.result()
        except BaseException:
            interrupted = True
            if not answer.done():  # interrupted: by Ctrl-C, or whatever a signal handler raises
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks if task])
                concurrent.futures.wait([answer], INTERRUPT_SECONDS)
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_turn, args=(loop,), name="rowlock-sync", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    def after_fork(self, child: bool) -> None:
        """A forked child has no portal thread, and another thread may have held the lock at the fork: make new ones."""
        if child:
            _inherited.append(self._loop)  # closing it would end the watching for the parent's loop
            self._forget()


_inherited: list[object] = []


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
            return
        except BaseException as error:  # a SystemExit of a coroutine: its caller gets it, and the loop goes on
            log.debug("the loop for sync calls goes on after %r", error)
