"""SQLite's reader: a second connection, which never waits for the writer, and the thread that uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from rowlock.core.errors import TooSlow
from rowlock.store.engine.operation import Wake
from rowlock.store.engine.sqlite.filesystem import DatabaseFile
from rowlock.store.engine.sqlite.runner import Runner, translate
from rowlock.store.engine.store import StoreOptions

T = TypeVar("T")

QUICK_SECONDS = 0.005  # a read of one job that takes longer has waited for the disk
SLOW_SECONDS = 1.0  # for this long after such a read, reads go to the reader's thread
SAME_SECONDS = 0.5  # between checks that the path still leads to the open file


class SqliteReader:
    """The reads of one store. `check` raises if the store must not be used any more."""

    def __init__(self, file: DatabaseFile, options: StoreOptions, check: Callable[[], None]) -> None:
        self._file, self._options, self._check = file, options, check
        self.runner: Runner | None = None  # opened by the first read
        self._has_read = False
        self._slow_until = self._same_until = 0.0  # by `time.monotonic`
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rowlock-reader")

    async def run(self, do: Callable[[Runner, list[Wake]], T]) -> T:
        """Read in the reader's thread."""

        def work() -> T:
            if self.runner is None:
                self.runner = Runner(self._file, self._options.clock, read_only=True)
            with self.runner.turn:
                self.runner.open()
                self._check_file(time.monotonic())
                with self.runner.limited(self._options.read_seconds):
                    return do(self.runner, [])

        self._has_read = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except apsw.InterruptError as error:
            raise TooSlow(f"the read took longer than {self._options.read_seconds:g} s") from error
        except apsw.Error as error:
            raise translate(error, "read") from error

    async def run_one(self, do: Callable[[Runner, list[Wake]], T]) -> T:
        """Read one job in the caller's own thread, because waking the reader's thread and being woken by it takes
        longer than the read. If the read would have to wait, or a recent one was slow, the reader's thread does it."""
        await asyncio.sleep(0)  # let other tasks run, in case the caller reads in a loop
        self._check()
        reader, began = self.runner, time.monotonic()
        if reader is None or began < self._slow_until or not reader.turn.acquire(blocking=False):
            return await self.run(do)
        try:
            reader.open()
            self._check_file(began)
            with reader.not_waiting(), reader.limited(self._options.read_seconds):
                return do(reader, [])
        except apsw.Error:  # the reader's thread will meet this error too, and report it
            pass
        finally:
            reader.turn.release()
            if time.monotonic() > began + QUICK_SECONDS:
                self._slow_until = began + SLOW_SECONDS
        return await self.run(do)

    def _check_file(self, now: float) -> None:
        """Raise if the path no longer leads to the open file, which no other process sees or changes any more."""
        if now > self._same_until:
            self._file.check()
            self._same_until = now + SAME_SECONDS

    def stop(self) -> None:
        """Close the connection as soon as the current read has ended."""
        if self._has_read:
            self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self.runner is not None:
            with self.runner.turn:
                self.runner.close()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._thread.shutdown()
