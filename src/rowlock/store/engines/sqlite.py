"""SQLite through apsw: one file, one writer thread in each process, a reader beside it."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from rowlock.core.errors import ConfigError, StoreError, TooSlow, UnsupportedFilesystem
from rowlock.store import migrate
from rowlock.store.engines.dialects import SQLITE
from rowlock.store.engines.engine import StoreOptions, Wakeups, file_of
from rowlock.store.engines.filesystem import network_filesystem
from rowlock.store.engines.operation import Operation, Wake, drive
from rowlock.store.engines.outage import outage_of
from rowlock.store.engines.rows import UserRow
from rowlock.store.engines.session import Block
from rowlock.store.engines.sqlite_runner import Runner, roll_back, translate, user_rows, user_values
from rowlock.store.engines.sqlite_writer import BUSY_SECONDS, Writer
from rowlock.store.engines.wakeups import DatagramWakeups

T = TypeVar("T")

QUICK_SECONDS = 0.005  # a read of one job that takes longer has waited for the disk
SLOW_SECONDS = 1.0  # for which the next reads then go to the reader's thread


class SqliteStore:
    """One SQLite file."""

    engine = "sqlite"
    dialect = SQLITE
    writers = 1

    def __init__(self, file: Path, options: StoreOptions) -> None:
        self.file, self._options, self.clock = file, options, options.clock
        self._writer = Runner(file, options.clock)
        self._reader: Runner | None = None
        self._has_read = False
        self._slow_until = 0.0  # a moment of `time.monotonic`
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="rowlock-reader")
        self._pid = os.getpid()
        self._writes = Writer(self._writer, options.transaction_seconds)
        self._closed = False
        self.outage = outage_of(str(file))
        self.migrated: list[str] = []

    @classmethod
    async def open(cls, url: str, options: StoreOptions) -> SqliteStore:
        """Open or create the file, refuse network filesystems, migrate."""
        file = file_of(url)
        if not file.parent.is_dir():
            raise ConfigError(f"{url!r}: the folder {file.parent} does not exist; create it first")
        if kind := network_filesystem(file.parent):
            raise UnsupportedFilesystem(f"{file} is on a {kind} filesystem, where SQLite's locks do not hold")
        store = await asyncio.to_thread(cls._open, file, options)
        try:
            store._writes.start()
        except BaseException:  # no thread to be had
            store._writer.close()
            raise
        return store

    @classmethod
    def _open(cls, file: Path, options: StoreOptions) -> SqliteStore:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                store = cls(file, options)
                with store._writer.turn:
                    if options.migrate is not False:
                        store.migrated = store._migrate()
                    migrate.check("sqlite", migrate.applied_in_sqlite(store._writer.connection), str(file))
                return store
            except (apsw.BusyError, apsw.LockedError) as error:
                if time.monotonic() > deadline:
                    raise translate(error, f"cannot open {file}") from error
                time.sleep(random.uniform(0.01, 0.1))
            except apsw.Error as error:
                raise translate(error, f"cannot open {file}") from error

    def _migrate(self) -> list[str]:
        connection = self._writer.connection
        if not migrate.pending("sqlite", migrate.applied_in_sqlite(connection)):
            return []
        names = []
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(migrate.bookkeeping("sqlite"))
            for migration in migrate.pending("sqlite", migrate.applied_in_sqlite(connection)):
                connection.execute(
                    "INSERT INTO rowlock_migrations (number, name, breaking) VALUES (?, ?, ?)",
                    (migration.number, migration.name, migration.breaking),
                )
                connection.execute(migration.sql)
                names.append(f"{migration.number:04d}_{migration.name}")
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return names

    async def describe(self) -> dict[str, str]:
        """What `doctor` prints about this database."""
        return {
            "engine": "SQLite",
            "version": apsw.sqlite_lib_version(),
            "url": str(self.file),
            "pooler": "none",
        }

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction, shared with the other operations that are waiting to be written."""
        self._check_usable()
        if op.read:
            do = partial(drive, op, SQLITE)
            return await (self._read_one(do) if op.size == 1 else self._read(do))
        answer = await self._writes.run(op)
        if self.outage.began is not None:  # reads do not count: they work while the disk is full
            self.outage.worked()
        return answer

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this SQLite store was opened before a fork; open it again in the child")
        if self._closed:
            raise StoreError("this store is closed")

    async def _read(self, do: Callable[[Runner, list[Wake]], T]) -> T:
        def work() -> T:
            if self._reader is None:
                self._reader = Runner(self.file, self.clock, read_only=True)
            with self._reader.turn:
                self._reader.open()
                with self._reader.limited(self._options.read_seconds):
                    return do(self._reader, [])

        self._has_read = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reads, work)
        except apsw.InterruptError as error:
            raise TooSlow(f"it took longer than {self._options.read_seconds:g} s") from error
        except apsw.Error as error:
            raise translate(error, "read") from error

    async def _read_one(self, do: Callable[[Runner, list[Wake]], T]) -> T:
        """Read one job in the caller's own thread: to wake the reader's thread and be woken by it takes longer than the
        read. Where the read would have to wait, or one has just been slow, the reader's thread does it."""
        await asyncio.sleep(0)  # a caller that reads in a loop must let other tasks run
        self._check_usable()
        reader, began = self._reader, time.monotonic()
        if reader is None or began < self._slow_until or not reader.turn.acquire(blocking=False):
            return await self._read(do)
        try:
            reader.open()
            with reader.not_waiting(), reader.limited(self._options.read_seconds):
                return do(reader, [])
        except apsw.Error:  # the reader's thread meets it too, and says what it is
            pass
        finally:
            reader.turn.release()
            if time.monotonic() > began + QUICK_SECONDS:
                self._slow_until = began + SLOW_SECONDS
        return await self._read(do)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Block]:
        """A transaction for the user's own SQL and operations together. Nothing else is written meanwhile."""
        self._check_usable()
        session = await self._writes.begin()
        block = Block(session)
        try:
            yield block
            await block.finish()
        except BaseException:
            block.close()
            await session.end("ROLLBACK")
            raise
        await session.end("COMMIT")

    def expect_transactions(self, number: int) -> None:
        """Nothing to prepare: all transactions share the one writer connection."""

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """The user's own query. It waits for no writer, and may not write."""
        self._check_usable()
        values = user_values(sql, args)
        return await self._read(lambda runner, wakes: user_rows(runner.connection, sql, values))

    async def execute(self, sql: str) -> None:
        """One statement of the store's own."""
        async with self.transaction() as session:
            await session.execute(sql)

    async def listen(self, on_wakeup: Callable[[str], None]) -> Wakeups:
        """Call `on_wakeup` when another process, or this one, wakes this worker."""
        return DatagramWakeups.open(self.file, on_wakeup)

    async def close(self) -> None:
        """Finish what is waiting and close."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._stop_reading()
        await self._writes.close()
        await asyncio.to_thread(self._reads.shutdown)

    def abandon(self) -> None:
        """Close without an event loop: the one that this store belonged to has ended."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._stop_reading()
            self._writes.stop()

    def _stop_reading(self) -> None:
        """Close the reader once the read that is under way has ended."""
        if self._has_read:
            self._reads.submit(self._close_reader)
        self._reads.shutdown(wait=False)

    def _close_reader(self) -> None:
        if self._reader is not None:
            with self._reader.turn:
                self._reader.close()
