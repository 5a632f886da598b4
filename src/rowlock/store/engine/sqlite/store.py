"""SQLite through apsw: one file, with one writer thread and one reader thread in each process.

The writer thread commits all waiting operations in one transaction. This group commit makes `synchronous=FULL` fast:
one fsync serves every operation that arrived during the previous commit. Each operation runs in its own savepoint, so
if one fails, the others go on. A user's transaction has the thread to itself until it ends or its time is up.

If a small operation arrives alone, its caller's own thread writes it, because waking the writer and being woken by it
costs as much as the fsync. This blocks the caller's event loop for one commit, so it happens only while commits are
quick.

A caller that is cancelled while its request waits withdraws the request; if it is cancelled while the request is being
written, it waits for the commit. Every request is answered, even while the writer is being closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from rowlock.core.errors import ConfigError, StoreError, UnsupportedFilesystem
from rowlock.store.engine import migrate
from rowlock.store.engine.dialects import SQLITE
from rowlock.store.engine.operation import Operation, UserRow, Wake, drive
from rowlock.store.engine.outage import outage_of
from rowlock.store.engine.sqlite.filesystem import DatabaseFile, network_filesystem
from rowlock.store.engine.sqlite.reader import SqliteReader
from rowlock.store.engine.sqlite.requests import Reply, SqliteSession, Work, groups, user_rows, user_values
from rowlock.store.engine.sqlite.runner import Runner, roll_back, translate
from rowlock.store.engine.sqlite.transaction import BUSY_SECONDS, begin, in_savepoint, serve, undo
from rowlock.store.engine.sqlite.wakeups import DatagramWakeups, send_all
from rowlock.store.engine.store import StoreOptions, Wakeups, file_of
from rowlock.store.engine.transactions import Block

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

CLOSE_SECONDS = 10.0
SMALL = 100  # an operation on more jobs than this is never written by its caller
QUICK_SECONDS = 0.001  # if commits take longer on average, all operations go to the writer thread
# In WAL mode, SQLite writes only what overflows its cache before the commit, so a tiny cache makes it write.
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
        self._reader = SqliteReader(self._opened, options, self._check_usable)
        self._pid = os.getpid()
        self._writer = SqliteWriter(self._runner, options.transaction_seconds)
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
            opened.add_done_callback(_close_unused)  # the thread goes on and opens the file, but nobody will use it
            raise
        store = opened.result()
        try:
            store._writer.start()
        except BaseException:  # for instance, no thread could be started
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
        """The facts that `doctor` prints about this database."""
        return {
            "engine": "SQLite",
            "version": apsw.sqlite_lib_version(),
            "url": str(self.file),
            "pooler": "none",
        }

    async def try_write(self) -> int | None:
        """Write 1 MiB and roll it back. Returns the free bytes as well, because the write may have succeeded only by
        reusing space in the write-ahead log."""
        await asyncio.to_thread(self._try_write)
        return shutil.disk_usage(self.file.parent).free

    def _try_write(self) -> None:
        try:
            connection = apsw.Connection(str(self.file), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
                connection.execute(TRIAL)
            finally:
                connection.close()  # rolls back a transaction that an error has left open
        except apsw.Error as error:
            raise translate(error, "write") from error

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction, which it shares with all operations that are waiting to be written."""
        self._check_usable()
        if op.read:
            do = partial(drive, op, SQLITE)
            return await (self._reader.run_one(do) if op.size == 1 else self._reader.run(do))
        answer = await self._writer.run(op)
        if self.outage.began is not None:  # reads don't count as successes: they work even when the disk is full
            self.outage.worked()
        return answer

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this SQLite store was opened before a fork; open it again in the child")
        if self._closed:
            raise StoreError("this store is closed")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Block]:
        """A transaction for the user's own SQL and operations together. All other writes wait until it ends."""
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

    def expect_transactions(self, number: int, seconds: float) -> None:
        """Roll back a user's transaction after `seconds` at the latest: the worker that asks for it shares the writer
        and has to renew its leases."""
        self._writer.limit_transactions(seconds)

    async def fetch(self, sql: str, *args: Any) -> list[UserRow]:
        """Run the user's own query. It doesn't wait for writers, and may not write."""
        self._check_usable()
        values = user_values(sql, args)
        return await self._reader.run(lambda runner, wakes: user_rows(runner.connection, sql, values))

    async def execute(self, sql: str) -> None:
        """Run one of Rowlock's own statements."""
        async with self.transaction() as session:
            await session.execute(sql)

    async def listen(self, on_wakeup: Callable[[str], None]) -> Wakeups:
        """Call `on_wakeup` for each wake-up from this or another process."""
        return DatagramWakeups.open(self.file, on_wakeup)

    async def close(self) -> None:
        """Finish the waiting requests and close."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._reader.stop()
        await self._writer.close()
        await asyncio.to_thread(self._reader.join)
        self._opened.end_use(self)

    def abandon(self) -> None:
        """Close without an event loop, after this store's event loop has ended."""
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


class SqliteWriter:
    """The writer thread, its inbox and its connection."""

    def __init__(self, runner: Runner, transaction_seconds: float) -> None:
        self.runner, self._transaction_seconds = runner, transaction_seconds
        self._turn = runner.turn  # the lock of the connection
        self._unanswered = self._arriving = 0  # operations given to the thread; operations that may be written here
        self._commit_seconds = 0.0  # moving average of the duration of a commit
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._over = False
        self._thread = threading.Thread(target=self._write_until_closed, name="rowlock-writer", daemon=True)

    def limit_transactions(self, seconds: float) -> None:
        """Let no user's transaction that begins from now on last longer than this, or than an earlier limit."""
        self._transaction_seconds = min(self._transaction_seconds, seconds)

    def start(self) -> None:
        """Start the writer thread."""
        self._thread.start()

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in the next commit."""
        if not (0 < op.size <= SMALL and await self._alone() and self._begin_here()):
            work = Work(partial(drive, op, SQLITE))
            self._inbox.put(work)
            if self._over:  # the thread has ended and won't answer
                self._refuse_the_rest()
            self._unanswered += 1
            try:
                return await work.wait()  # type: ignore[no-any-return]
            finally:
                self._unanswered -= 1
        wakes: list[Wake] = []
        try:
            value = drive(op, SQLITE, self.runner, wakes)
            self._commit()
        except BaseException as error:
            undo(self.runner)
            if isinstance(error, apsw.Error):
                raise translate(error, "write") from error
            raise
        finally:
            self._turn.release()
        send_all(wakes)
        return value

    async def _alone(self) -> bool:
        """Whether no other task of this event loop wants to write now. If several do, one group commit is better."""
        self._arriving += 1
        try:
            await asyncio.sleep(0)  # let tasks run that are about to make a request
            return self._arriving == 1 and not self._unanswered and self._commit_seconds < QUICK_SECONDS
        finally:
            self._arriving -= 1

    def _begin_here(self) -> bool:
        """Begin a transaction in the caller's thread. False if that would mean waiting for another thread or process,
        or if a checkpoint of the write-ahead log is due."""
        if self.runner.log_is_long or not self._turn.acquire(blocking=False):
            return False
        begun = False
        try:
            self.runner.open()
            begun = self.runner.begin_at_once()
        except (apsw.Error, StoreError):  # the writer thread will meet this error too, and report it
            pass
        finally:
            if not begun:
                self._turn.release()
        return begun

    async def begin(self) -> SqliteSession:
        """Wait for the writer lock and open a new transaction."""
        session = SqliteSession()
        opening = Work(lambda runner, wakes: None, session)
        self._inbox.put(opening)
        if self._over:  # the thread has ended and won't answer
            self._refuse_the_rest()
        try:
            await opening.wait()
        except asyncio.CancelledError:
            if not opening.withdrawn:
                await session.end("ROLLBACK")
            raise
        return session

    def stop(self) -> None:
        """Accept no more requests; the thread finishes the waiting ones and closes the file."""
        self._inbox.put(None)

    async def close(self) -> None:
        """Stop, and wait at most ten seconds for the thread, because another process may keep the file locked."""
        while self._arriving:  # they would reopen the file; each writes, or hands over, in the next turn of the loop
            await asyncio.sleep(0)
        self.stop()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _write_until_closed(self) -> None:
        for group in groups(self._inbox):
            try:
                with self._turn:
                    try:
                        if (session := group[0].session) is not None:
                            self._serve(session, group[0])
                        else:
                            self._write_group(group)
                    finally:
                        undo(self.runner)  # a transaction is still open only after an error
            except BaseException as error:  # catch everything: without this thread, every caller would wait forever
                log.exception("unexpected error in SQLite's writer thread")
                failure = StoreError(f"write: {error!r}")
                for work in group:
                    if work.session is not None:
                        work.session.end_with(failure)
                    work.resolve(error=failure)
        with self._turn:
            self.runner.close()
        self._over = True
        self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """Answer requests that arrive after the thread has ended, with an error."""
        with suppress(queue.Empty):
            while True:
                work = self._inbox.get_nowait()
                if work is not None:
                    work.resolve(error=StoreError("this store is closed"))

    def _write_group(self, group: list[Work]) -> None:
        """Run a group of requests in one transaction, and answer them only after the commit."""
        answers, wakes = list[Reply](), list[Wake]()
        try:
            begin(self.runner)
        except (apsw.Error, StoreError) as error:
            answers = [(None, translate(error, "write"))] * len(group)
        else:
            group = [work for work in group if work.take()]  # skip requests that have been withdrawn
            try:
                if len(group) == 1:
                    answers = [(group[0].do(self.runner, wakes), None)]
                else:
                    answers = [in_savepoint(self.runner, work.do, wakes) for work in group]
                self._commit()
            except BaseException as error:
                undo(self.runner)
                wakes.clear()
                cause = translate(error, "write") if isinstance(error, apsw.Error) else error
                answers = [(None, cause)] * len(group)
        send_all(wakes)
        for work, (value, failure) in zip(group, answers, strict=True):
            work.resolve(value, failure)
        self.runner.checkpoint()

    def _commit(self) -> None:
        began = time.monotonic()
        self.runner.commit(began)
        self._commit_seconds += 0.05 * (time.monotonic() - began - self._commit_seconds)

    def _serve(self, session: SqliteSession, first: Work) -> None:
        """Give the writer to one user's transaction until it ends or its time is up."""
        try:
            begin(self.runner)
        except (apsw.Error, StoreError) as error:
            session.end_with(translate(error, "transaction"))
            first.resolve(error=session.over)
            return
        if first.take():  # else its caller gave up waiting, and the transaction is rolled back
            first.resolve()
            serve(self.runner, session, self._transaction_seconds)
