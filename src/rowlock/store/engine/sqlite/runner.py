"""Execute named statements on one SQLite connection."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, cast

import apsw

from rowlock.core.errors import StorageFull, StoreError, StoreUnavailable
from rowlock.core.times import FakeClock
from rowlock.store.engine import forking
from rowlock.store.engine.operation import Call, Row, row_maker
from rowlock.store.engine.sqlite.filesystem import DatabaseFile
from rowlock.store.engine.statements import Query, load

BUSY_SECONDS = 5.0  # how long a statement waits for a writer in another process
FORK_SECONDS = 1.0  # how long a fork waits for a statement to end
BUSY_LOOK_SECONDS = 0.002  # between tries while another process writes; SQLite's own waits, up to 100 ms, starve us
CHECKPOINT_PAGES = 1000  # a write-ahead log with more pages is copied back into the file
INSTRUCTIONS = 20_000  # of SQLite's virtual machine (about a millisecond) between checks of the time limit


def translate(error: BaseException, doing: str) -> StoreError:
    """Our error for an error of apsw; `doing` starts its message. Our own errors are returned unchanged."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{doing}: the disk is full ({error}); reads work, writes resume when there is space")
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
        return StorageFull(f"{doing}: the disk refused the write ({error})")
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError)):
        return StoreUnavailable(f"{doing}: {error}")
    return StoreError(f"{doing}: {error}")


def bindable(value: Any) -> Any:
    """Convert a value that SQLite can't store: a datetime to a number, a batch to JSON."""
    if isinstance(value, datetime):
        return value.timestamp()
    return _batch(value) if isinstance(value, (list, tuple, dict)) else value


_batch = json.JSONEncoder(default=bindable).encode


class Runner:
    """Executes statements on one apsw connection. Only the thread that holds `turn` may use it."""

    _inherited: ClassVar[dict[Path, Any]] = {}  # files that were open when this process was forked, see `after_fork`

    def __init__(self, file: DatabaseFile, clock: FakeClock | None, *, read_only: bool = False) -> None:
        self.pid = os.getpid()
        self.clock = clock
        self.queries: dict[str, Query] = load("sqlite")
        self._makers: dict[str, Callable[[Iterable[Any]], Row]] = {}
        self.turn = threading.Lock()
        self._file, self._read_only = file, read_only
        self.connection: apsw.Connection
        self._is_open = self._closed_for_fork = False
        self._busy_since = 0.0
        self.log_pages = 0  # length of the write-ahead log after the last commit
        forking.watch(self)
        with self.turn:
            self.open()

    def open(self) -> None:
        """Open the file, unless it is open already."""
        if self._is_open:
            return
        path = self._file.path
        if path in self._inherited:
            raise StoreError(
                f"{path} was being written when this process was forked, so it cannot be used here: "
                "fork outside of transactions, or start processes by spawn"
            )
        self._file.create()
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_handler(self._wait)
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",
                "foreign_keys=ON",
                "journal_size_limit=67108864",
                "temp_store=MEMORY",  # each claim makes small temporary tables; as files they would double its time
                *(["query_only=ON"] if self._read_only else []),
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.convert_binding = lambda cursor, number, value: bindable(value)
            connection.set_wal_hook(self._committed)  # replaces SQLite's own checkpoints, which run inside a COMMIT
            self._file.opened()
        except BaseException:
            connection.close()
            raise
        self.connection, self._is_open = connection, True

    def before_fork(self) -> None:
        """Close the file, because a child must not inherit it; but not in the middle of a transaction."""
        self._closed_for_fork = os.getpid() == self.pid and self.turn.acquire(timeout=FORK_SECONDS)
        if self._closed_for_fork:
            self.close()

    def after_fork(self, child: bool) -> None:
        """In the parent, the next statement reopens the file. If a child inherits the file open, it must neither use
        nor close this connection, nor open another one: SQLite would take the parent's locks for its own."""
        if self._closed_for_fork:
            self.turn.release()
        elif child and self._is_open:
            self._inherited[self._file.path] = self.connection
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))  # never close it, not even at exit

    def _committed(self, connection: Any, database: str, pages: int) -> int:
        self.log_pages = pages
        return apsw.SQLITE_OK

    @property
    def log_is_long(self) -> bool:
        """Whether a checkpoint of the write-ahead log is due."""
        return self.log_pages >= CHECKPOINT_PAGES

    @contextlib.contextmanager
    def not_waiting(self) -> Iterator[None]:
        """In this block, a statement that would wait for another connection raises BusyError at once."""
        self.connection.set_busy_handler(None)
        try:
            yield
        finally:
            self.connection.set_busy_handler(self._wait)

    def begin_at_once(self) -> bool:
        """BEGIN IMMEDIATE, if no other connection is writing."""
        self.connection.set_busy_handler(None)  # without `not_waiting`, which would cost each single enqueue 3 µs
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        finally:
            self.connection.set_busy_handler(self._wait)
        return True

    def commit(self, now: float) -> None:
        """COMMIT, unless the path no longer leads to the open file: every write is checked, as late as possible."""
        try:
            self._file.check_lately(now)
        except StoreUnavailable:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def _wait(self, looks: int) -> bool:
        """The busy handler: another connection is writing. Sleeps a little; returns whether to try again."""
        if looks == 0:
            self._busy_since = time.monotonic()
        if time.monotonic() > self._busy_since + BUSY_SECONDS:
            return False
        time.sleep(random.uniform(0.5, 1.5) * BUSY_LOOK_SECONDS)
        return True

    def checkpoint(self) -> None:
        """Copy the write-ahead log back into the file once it is long, as SQLite itself would, but outside of COMMIT,
        for which a caller waits. Don't postpone it: while the log file grows, each fsync costs about twice as much."""
        if self.log_is_long:
            self.log_pages = 0
            with contextlib.suppress(apsw.Error):  # busy, or no space: the log grows until the next checkpoint
                self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def execute(self, call: Call) -> list[Row]:
        query = self.queries[call.name]
        values = list(map(call.params.get, query.names))
        if query.now is not None:
            values[query.now] = self.clock.now().timestamp() if self.clock else time.time()
        cursor = self.connection.execute(query.sql, values)
        if query.is_record:
            return cast(list[Row], cursor.fetchall())
        make = self._makers.get(query.name)
        if make is None:
            try:
                columns = tuple(column for column, _ in cursor.getdescription())
            except apsw.ExecutionCompleteError:  # the statement returns no rows
                return []
            make = self._makers[query.name] = row_maker(columns)
        return list(map(make, cursor))

    @contextlib.contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Interrupt the statements in this block once they have taken `seconds`."""
        if seconds is None:
            yield
            return
        until = time.monotonic() + seconds
        self.connection.set_progress_handler(lambda: time.monotonic() > until, INSTRUCTIONS)
        try:
            yield
        finally:
            self.connection.set_progress_handler(None)

    def close(self) -> None:
        """Close the file; `open` reopens it."""
        if self._is_open:
            self._is_open = False
            self.connection.close()


def roll_back(connection: apsw.Connection) -> None:
    # SQLITE_FULL and IOERR may have ended the transaction already; then a ROLLBACK would fail and hide the cause.
    if connection.in_transaction:
        connection.execute("ROLLBACK")
