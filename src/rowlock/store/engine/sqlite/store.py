"""SQLite through apsw: one file, one writer thread in each process, a reader beside it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from rowlock.core.errors import ConfigError, StoreError, UnsupportedFilesystem
from rowlock.store.engine import migrate
from rowlock.store.engine.dialects import SQLITE
from rowlock.store.engine.operation import Operation, UserRow, drive
from rowlock.store.engine.outage import outage_of
from rowlock.store.engine.sqlite.errors import translate
from rowlock.store.engine.sqlite.filesystem import DatabaseFile, network_filesystem
from rowlock.store.engine.sqlite.reader import Reader
from rowlock.store.engine.sqlite.requests import user_rows, user_values
from rowlock.store.engine.sqlite.runner import Runner, roll_back
from rowlock.store.engine.sqlite.transaction import BUSY_SECONDS
from rowlock.store.engine.sqlite.wakeups import DatagramWakeups
from rowlock.store.engine.sqlite.writer import Writer
from rowlock.store.engine.store import StoreOptions, Wakeups, file_of
from rowlock.store.engine.transactions import Block

T = TypeVar("T")
# In WAL mode, SQLite keeps an open transaction in its cache: only what does not fit is written before the commit.
TRIAL = """PRAGMA cache_size = 10;
BEGIN IMMEDIATE; CREATE TABLE rowlock_trial (filler); INSERT INTO rowlock_trial VALUES (zeroblob(1048576)); ROLLBACK"""


class SqliteStore:
    """One SQLite file."""

    engine = "sqlite"
    dialect = SQLITE
    writers = 1

    def __init__(self, file: Path, options: StoreOptions) -> None:
        self.file, self._options, self.clock = file, options, options.clock
        self._opened = DatabaseFile.at(file)
        self._runner = Runner(self._opened, options.clock)  # the one connection that writes
        self._reader = Reader(self._opened, options, self._check_usable)
        self._pid = os.getpid()
        self._writer = Writer(self._runner, options.transaction_seconds)
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
        opened: Future[SqliteStore] = Future()
        try:
            await asyncio.to_thread(_answer, opened, partial(cls._open, file, options))
        except asyncio.CancelledError:
            opened.add_done_callback(_close_unused)  # the thread goes on, and opens it for nobody
            raise
        store = opened.result()
        try:
            store._writer.start()
        except BaseException:  # no thread to be had
            store._runner.close()
            store._opened.end_use(store)
            raise
        return store

    @classmethod
    def _open(cls, file: Path, options: StoreOptions) -> SqliteStore:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                store = cls(file, options)
                with store._runner.turn:
                    if options.migrate is not False:
                        store.migrated = store._migrate()
                    migrate.check(SQLITE, migrate.applied_in_sqlite(store._runner.connection), str(file))
                store._opened.begin_use(store)
                return store
            except (apsw.BusyError, apsw.LockedError) as error:
                if time.monotonic() > deadline:
                    raise translate(error, f"cannot open {file}") from error
                time.sleep(random.uniform(0.01, 0.1))
            except apsw.Error as error:
                raise translate(error, f"cannot open {file}") from error

    def _migrate(self) -> list[str]:
        connection = self._runner.connection
        applied = migrate.applied_in_sqlite(connection)
        migrate.refuse_unreleased(SQLITE, applied, str(self.file))
        if not migrate.pending(SQLITE, applied) and not migrate.changed(SQLITE, applied):
            return []
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(SQLITE.migrations_table)
            applied = migrate.applied_in_sqlite(connection)
            missing, files = migrate.pending(SQLITE, applied), migrate.changed(SQLITE, applied)
            for migration in missing:
                connection.execute(migrate.record(SQLITE, migration) + migration.sql)
            connection.execute(migrate.replace(SQLITE, files))
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return migrate.titles(missing, files)

    async def describe(self) -> dict[str, str]:
        """What `doctor` prints about this database."""
        return {
            "engine": "SQLite",
            "version": apsw.sqlite_lib_version(),
            "url": str(self.file),
            "pooler": "none",
        }

    async def try_write(self) -> int | None:
        """Write 1 MiB and roll it back. Returns the bytes that are free: the write may have found room in a write-ahead
        log that had been longer before."""
        await asyncio.to_thread(self._try_write)
        return shutil.disk_usage(self.file.parent).free

    def _try_write(self) -> None:
        try:
            connection = apsw.Connection(str(self.file), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
                connection.execute(TRIAL)
            finally:
                connection.close()  # rolls back what an error left open
        except apsw.Error as error:
            raise translate(error, "write") from error

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction, shared with the other operations that are waiting to be written."""
        self._check_usable()
        if op.read:
            do = partial(drive, op, SQLITE)
            return await (self._reader.run_one(do) if op.size == 1 else self._reader.run(do))
        answer = await self._writer.run(op)
        if self.outage.began is not None:  # reads do not count: they work while the disk is full
            self.outage.worked()
        return answer

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this SQLite store was opened before a fork; open it again in the child")
        if self._closed:
            raise StoreError("this store is closed")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Block]:
        """A transaction for the user's own SQL and operations together. Nothing else is written meanwhile."""
        self._check_usable()
        session = await self._writer.begin()
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
        return await self._reader.run(lambda runner, wakes: user_rows(runner.connection, sql, values))

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
        self._reader.stop()
        await self._writer.close()
        await asyncio.to_thread(self._reader.join)
        self._opened.end_use(self)

    def abandon(self) -> None:
        """Close without an event loop: the one that this store belonged to has ended."""
        if not self._closed and os.getpid() == self._pid:
            self._closed = True
            self._reader.stop()
            self._writer.stop()
            self._opened.end_use(self)


def _answer(opened: Future[SqliteStore], do: Callable[[], SqliteStore]) -> None:
    try:
        opened.set_result(do())
    except BaseException as error:
        opened.set_exception(error)


def _close_unused(opened: Future[SqliteStore]) -> None:
    if opened.exception() is None:
        store = opened.result()
        store._runner.close()
        store._opened.end_use(store)
