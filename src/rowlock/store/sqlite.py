"""SQLite through apsw: one writer thread that commits whatever is waiting in one transaction, and a reader beside it.

Group commit is what makes `synchronous=FULL` fast: one fsync serves every operation that arrived while the last one
was being written. Each operation runs in its own savepoint, so one that fails takes no other down.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import apsw

from rowlock.core.clock import FakeClock
from rowlock.core.errors import (
    ConfigError,
    RowlockError,
    StorageFull,
    StoreError,
    StoreUnavailable,
    TransactionTooLong,
    UnsupportedFilesystem,
)
from rowlock.store import migrate
from rowlock.store.bells import DatagramBell, ring
from rowlock.store.engine import Bell, Session, StoreOptions
from rowlock.store.filesystem import network_filesystem
from rowlock.store.operation import Call, Operation, Ring, Row, drive
from rowlock.store.queries import Query, load

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

BUSY_SECONDS = 30.0
GROUP = 256  # operations in one commit, at most


def file_of(url: str) -> Path:
    """The file that a sqlite:/// URL names."""
    path = unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else ""
    if not path or path == ":memory:":
        raise ConfigError(f"{url!r} names no file; write sqlite:///jobs.db (or sqlite:////absolute/jobs.db)")
    return Path(path).absolute()


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    return value


class _Runner:
    """Executes statements on one apsw connection. Used by one thread at a time."""

    def __init__(self, file: Path, clock: FakeClock | None) -> None:
        self.pid = os.getpid()
        self.clock = clock
        self.queries: dict[str, Query] = load("sqlite")
        self.connection = apsw.Connection(str(file))
        self.connection.set_busy_timeout(5000)
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "journal_size_limit=67108864",
        ):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()

    def execute(self, call: Call) -> list[Row]:
        query = self.queries[call.name]
        if query.sql is None:
            return []
        bindings: dict[str, Any] = {}
        for name, _ in query.binds:
            if name == "now":
                bindings[name] = self.clock.now().timestamp() if self.clock else time.time()
            else:
                value = call.params.get(name)
                is_batch = isinstance(value, (list, tuple))
                bindings[name] = json.dumps(value, default=_value) if is_batch else _value(value)
        return list[Row](self.connection.execute(query.sql, bindings).fetchall())

    def close(self) -> None:
        self.connection.close()


class _Work:
    """One request to the writer thread, and the future that its caller waits on."""

    __slots__ = ("answer", "do", "loop", "session")

    def __init__(self, do: Callable[[_Runner, list[Ring]], Any], session: _SqliteSession | None = None) -> None:
        self.do, self.session = do, session
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()

    def resolve(self, value: Any = None, error: BaseException | None = None) -> None:
        def done() -> None:
            if not self.answer.done():
                if error is None:
                    self.answer.set_result(value)
                else:
                    self.answer.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(done)
        except RuntimeError:  # the caller's loop has closed; nobody waits any more
            log.debug("an answer found no loop to go to")


class SqliteStore:
    """One SQLite file."""

    engine = "sqlite"
    one_statement = False

    def __init__(self, file: Path, options: StoreOptions) -> None:
        self.file, self._options, self.clock = file, options, options.clock
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._writer = _Runner(file, options.clock)
        self._reader: _Runner | None = None
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="rowlock-reader")
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._write_loop, name="rowlock-writer", daemon=True)
        self._closed = False
        self.migrated: list[str] = []

    @classmethod
    async def open(cls, url: str, options: StoreOptions) -> SqliteStore:
        """Open or create the file, refuse network filesystems, migrate."""
        file = file_of(url)
        if not file.parent.is_dir():
            raise ConfigError(f"{url!r}: the folder {file.parent} does not exist")
        if kind := network_filesystem(file.parent):
            raise UnsupportedFilesystem(f"{file} is on a {kind} filesystem, where SQLite's locks do not hold")
        store = await asyncio.to_thread(cls._open, file, options)
        store._thread.start()
        return store

    @classmethod
    def _open(cls, file: Path, options: StoreOptions) -> SqliteStore:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                store = cls(file, options)
                if options.migrate is not False:
                    store.migrated = store._migrate()
                migrate.check("sqlite", store._applied(), str(file))
                return store
            except (apsw.BusyError, apsw.LockedError) as error:
                if time.monotonic() > deadline:
                    raise _translate(error, f"cannot open {file}") from error
                time.sleep(random.uniform(0.01, 0.1))
            except apsw.Error as error:
                raise _translate(error, f"cannot open {file}") from error

    def _applied(self) -> dict[int, bool]:
        connection = self._writer.connection
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rowlock_migrations'").fetchall()
        if not known:
            return {}
        return {row[0]: bool(row[1]) for row in connection.execute("SELECT number, breaking FROM rowlock_migrations")}

    def _migrate(self) -> list[str]:
        connection = self._writer.connection
        if not migrate.pending("sqlite", self._applied()):
            return []
        names = []
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(migrate.bookkeeping("sqlite"))
            for migration in migrate.pending("sqlite", self._applied()):
                connection.execute(
                    "INSERT INTO rowlock_migrations (number, name, breaking) VALUES (?, ?, ?)",
                    (migration.number, migration.name, migration.breaking),
                )
                connection.execute(migration.sql)
                names.append(f"{migration.number:04d}_{migration.name}")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        return names

    async def applied(self) -> dict[int, bool]:
        """The migrations in the database, and whether each is breaking."""
        return await self._read(lambda runner: self._applied_of(runner))

    @staticmethod
    def _applied_of(runner: _Runner) -> dict[int, bool]:
        rows = runner.connection.execute("SELECT number, breaking FROM rowlock_migrations").fetchall()
        return {int(str(row[0])): bool(row[1]) for row in rows}

    async def describe(self) -> dict[str, str]:
        """What `doctor` prints about this database."""
        return {
            "engine": "SQLite",
            "version": apsw.sqlite_lib_version(),
            "url": str(self.file),
            "pooler": "none",
        }

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in one transaction, shared with whatever else is waiting to be written."""
        self._check_usable()
        if op.read:
            return await self._read(lambda runner: drive(op.start(), runner.execute, lambda _: None))
        work = _Work(lambda runner, rings: drive(op.start(), runner.execute, rings.append))
        self._inbox.put(work)
        return await work.answer  # type: ignore[no-any-return]

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this SQLite store was opened before a fork; open it again in the child")
        if self._closed:
            raise StoreError("this store is closed")

    async def _read(self, do: Callable[[_Runner], T]) -> T:
        def work() -> T:
            if self._reader is None:
                self._reader = _Runner(self.file, self.clock)
            return do(self._reader)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._reads, work)
        except apsw.Error as error:
            raise _translate(error, "read") from error

    def _write_loop(self) -> None:
        while (first := self._inbox.get()) is not None:
            group = [first]
            while first.session is None and len(group) < GROUP:
                try:
                    work = self._inbox.get_nowait()
                except queue.Empty:
                    break
                if work is None or work.session is not None:
                    self._commit(group)
                    if work is None:
                        return
                    group = [work]
                    break
                group.append(work)
            session = group[0].session
            if session is not None:
                self._serve(session, group[0])
            else:
                self._commit(group)

    def _commit(self, group: list[_Work]) -> None:
        """Run a group of requests in one transaction; answer each only after the commit."""
        connection, rings = self._writer.connection, list[Ring]()
        answers: list[tuple[_Work, Any, BaseException | None]] = []
        try:
            self._begin()
            for work in group:
                connection.execute("SAVEPOINT one")
                try:
                    answers.append((work, work.do(self._writer, rings), None))
                except (apsw.FullError, apsw.IOError, apsw.BusyError):
                    raise
                except Exception as error:
                    connection.execute("ROLLBACK TO one")
                    failure = _translate(error, "write") if isinstance(error, apsw.Error) else error
                    answers.append((work, None, failure))
                connection.execute("RELEASE one")
            connection.execute("COMMIT")
        except BaseException as error:
            _roll_back(connection)
            cause = _translate(error, "write") if isinstance(error, apsw.Error) else error
            for work in group:
                work.resolve(error=cause)
            return
        for work, value, failed in answers:
            work.resolve(value, failed)
        for bells in rings:
            ring(bells.bells, bells.what)

    def _begin(self) -> None:
        """BEGIN IMMEDIATE, so that a busy database is met here and not in the middle; own retry with jitter on top."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._writer.connection.execute("BEGIN IMMEDIATE")
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.001, 0.02))

    def _serve(self, session: _SqliteSession, first: _Work) -> None:
        """Give the writer to one user's transaction until it ends or its time is up."""
        connection = self._writer.connection
        try:
            self._begin()
        except apsw.Error as error:
            session.over = _translate(error, "transaction")
            first.resolve(error=session.over)
            return
        first.resolve()
        deadline = time.monotonic() + self._options.transaction_seconds
        while True:
            try:
                work = session.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                _roll_back(connection)
                session.over = TransactionTooLong(
                    f"the transaction was open for {self._options.transaction_seconds:g} s and was rolled back: "
                    "on SQLite it holds the only writer lock; do slow work outside of it"
                )
                return
            try:
                value = work.do(self._writer, session.rings)
            except Exception as error:
                ended = not connection.in_transaction
                failure = _translate(error, "transaction") if isinstance(error, apsw.Error) else error
                if ended:
                    session.over = failure if isinstance(failure, RowlockError) else StoreError(str(failure))
                work.resolve(error=failure)
            else:
                work.resolve(value)
                if not connection.in_transaction:
                    for bells in session.rings:
                        ring(bells.bells, bells.what)
            if not connection.in_transaction:
                return

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """A transaction for the user's own SQL and operations together. Nothing else is written meanwhile."""
        self._check_usable()
        session = _SqliteSession()
        opening = _Work(lambda runner, rings: None, session)
        self._inbox.put(opening)
        try:
            await opening.answer
            yield session
        except BaseException:
            await asyncio.shield(session.end("ROLLBACK"))
            raise
        await asyncio.shield(session.end("COMMIT"))

    async def listen(self, heard: Callable[[str], None]) -> Bell:
        """Call `heard` when another process (or this one) rings this worker's bell."""
        return DatagramBell.open(self.file, heard)

    async def close(self) -> None:
        """Finish what is waiting and close."""
        if self._closed:
            return
        self._closed = True
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, 10)
        self._reads.shutdown()
        for runner in (self._writer, self._reader):
            if runner is not None:
                runner.close()


class _SqliteSession:
    """The async side of a user's transaction; each call is carried out by the writer thread."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self.rings: list[Ring] = []
        self.over: RowlockError | None = None
        self._failed: BaseException | None = None

    async def _do(self, do: Callable[[_Runner, list[Ring]], T]) -> T:
        if self.over is not None:
            raise self.over
        work = _Work(do)
        self.inbox.put(work)
        while True:
            done, _ = await asyncio.wait({work.answer}, timeout=0.5)
            if done:
                self._failed = self._failed or work.answer.exception()
                return work.answer.result()  # type: ignore[no-any-return]
            if self.over is not None:  # its time ran out between the check and the put
                raise self.over

    async def run(self, op: Operation[T]) -> T:
        """Run an operation inside this transaction."""
        return await self._do(lambda runner, rings: drive(op.start(), runner.execute, rings.append))

    async def execute(self, sql: str, *args: Any) -> None:
        """The user's own statement; parameters are $1, $2, … as on PostgreSQL, or ?."""
        await self.fetch(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """The user's own query."""
        values = [_value(arg) for arg in args]
        named = {str(n): value for n, value in enumerate(values, 1)}
        bindings: Any = named if "$1" in sql else tuple(values)
        return await self._do(lambda runner, rings: list[Row](runner.connection.execute(sql, bindings).fetchall()))

    async def end(self, how: str) -> None:
        """COMMIT or ROLLBACK."""
        if self.over is not None:
            if how == "COMMIT":
                raise self.over
            return
        failed = self._failed if how == "COMMIT" else None
        if how == "ROLLBACK" or failed is not None:
            self.rings.clear()
        await self._do(lambda runner, rings: runner.connection.execute("ROLLBACK" if failed else how).fetchall())
        if failed is not None:  # as on PostgreSQL, where a failed statement undoes its whole transaction
            raise StoreError(f"a statement of this transaction failed, so all of it was rolled back: {failed}")


def _roll_back(connection: apsw.Connection) -> None:
    # SQLITE_FULL and IOERR may have ended the transaction already; a blind ROLLBACK would hide the cause.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _translate(error: BaseException, doing: str) -> StoreError:
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{doing}: the disk is full ({error}); reads work, writes resume when there is space")
    if isinstance(error, apsw.IOError) and "WRITE" in str(error).upper():
        return StorageFull(f"{doing}: the disk did not take the write ({error})")
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError)):
        return StoreUnavailable(f"{doing}: {error}")
    return StoreError(f"{doing}: {error}")
