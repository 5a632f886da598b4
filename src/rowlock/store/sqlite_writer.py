"""SQLite's one writer: a thread that commits whatever is waiting in one transaction.

Group commit is what makes `synchronous=FULL` fast: one fsync serves every operation that arrived while the last one was
being written. Each operation runs in its own savepoint, so one that fails takes no other down. A user's transaction has
the thread to itself until it ends, or until its time is up.
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
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw

from rowlock.core.clock import FakeClock
from rowlock.core.errors import RowlockError, StorageFull, StoreError, StoreUnavailable, TransactionTooLong
from rowlock.store.bells import ring
from rowlock.store.operation import Call, Operation, Ring, Row, drive
from rowlock.store.queries import Query, load
from rowlock.store.session import BaseSession

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

BUSY_SECONDS = 30.0
GROUP = 256  # operations in one commit, at most


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    return value


class Runner:
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
            # Four times the usual: a page that many commits change is then copied back a quarter as often.
            "wal_autocheckpoint=4000",
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

    def __init__(self, do: Callable[[Runner, list[Ring]], Any], session: SqliteSession | None = None) -> None:
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


class Writer:
    """The thread, its inbox and its connection."""

    def __init__(self, runner: Runner, transaction_seconds: float) -> None:
        self.runner, self._transaction_seconds = runner, transaction_seconds
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="rowlock-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in the next commit."""
        work = _Work(lambda runner, rings: drive(op.start(), runner.execute, rings.append))
        self._inbox.put(work)
        return await work.answer  # type: ignore[no-any-return]

    async def begin(self) -> SqliteSession:
        """Wait for the writer lock and open a transaction of its own."""
        session = SqliteSession()
        opening = _Work(lambda runner, rings: None, session)
        self._inbox.put(opening)
        try:
            await opening.answer
        except asyncio.CancelledError:
            await asyncio.shield(session.end("ROLLBACK"))
            raise
        return session

    def stop(self) -> None:
        """Finish what is waiting and close."""
        self._inbox.put(None)
        self._thread.join(10)
        self.runner.close()

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
        connection, rings = self.runner.connection, list[Ring]()
        answers: list[tuple[_Work, Any, BaseException | None]] = []
        try:
            self._begin()
            if len(group) == 1:
                answers.append((group[0], group[0].do(self.runner, rings), None))
            else:
                for work in group:
                    answers.append(self._in_savepoint(work, rings))
            connection.execute("COMMIT")
        except BaseException as error:
            roll_back(connection)
            cause = translate(error, "write") if isinstance(error, apsw.Error) else error
            for work in group:
                work.resolve(error=cause)
            return
        for work, value, failed in answers:
            work.resolve(value, failed)
        for bells in rings:
            ring(bells.bells, bells.what)

    def _in_savepoint(self, work: _Work, rings: list[Ring]) -> tuple[_Work, Any, BaseException | None]:
        """One of several requests: if it fails, the others go on."""
        connection = self.runner.connection
        connection.execute("SAVEPOINT one")
        value, failure = None, None
        try:
            value = work.do(self.runner, rings)
        except (apsw.FullError, apsw.IOError, apsw.BusyError):
            raise
        except Exception as error:
            connection.execute("ROLLBACK TO one")
            failure = translate(error, "write") if isinstance(error, apsw.Error) else error
        connection.execute("RELEASE one")
        return work, value, failure

    def _begin(self) -> None:
        """BEGIN IMMEDIATE, so that a busy database is met here and not in the middle; own retry with jitter on top."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.runner.connection.execute("BEGIN IMMEDIATE")
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.001, 0.02))

    def _serve(self, session: SqliteSession, first: _Work) -> None:
        """Give the writer to one user's transaction until it ends or its time is up."""
        connection = self.runner.connection
        try:
            self._begin()
        except apsw.Error as error:
            session.over = translate(error, "transaction")
            first.resolve(error=session.over)
            return
        first.resolve()
        deadline = time.monotonic() + self._transaction_seconds
        while True:
            try:
                work = session.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                roll_back(connection)
                session.over = TransactionTooLong(
                    f"the transaction was open for {self._transaction_seconds:g} s and was rolled back: "
                    "on SQLite it holds the only writer lock; do slow work outside of it"
                )
                return
            try:
                value = work.do(self.runner, session.rings)
            except Exception as error:
                ended = not connection.in_transaction
                failure = translate(error, "transaction") if isinstance(error, apsw.Error) else error
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


class SqliteSession(BaseSession):
    """The async side of a user's transaction; each call is carried out by the writer thread."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self.rings: list[Ring] = []
        self.over: RowlockError | None = None

    async def _do(self, do: Callable[[Runner, list[Ring]], T]) -> T:
        if self.over is not None:
            raise self.over
        work = _Work(do)
        self.inbox.put(work)
        while True:
            done, _ = await asyncio.wait({work.answer}, timeout=0.5)
            if done:
                self.failed = self.failed or work.answer.exception()
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
        failed = self.failed if how == "COMMIT" else None
        if how == "ROLLBACK" or failed is not None:
            self.rings.clear()
        await self._do(lambda runner, rings: runner.connection.execute("ROLLBACK" if failed else how).fetchall())
        if failed is not None:  # as on PostgreSQL, where a failed statement undoes its whole transaction
            raise self.undone()


def roll_back(connection: apsw.Connection) -> None:
    # SQLITE_FULL and IOERR may have ended the transaction already; a blind ROLLBACK would hide the cause.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def translate(error: BaseException, doing: str) -> StoreError:
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{doing}: the disk is full ({error}); reads work, writes resume when there is space")
    if isinstance(error, apsw.IOError) and "WRITE" in str(error).upper():
        return StorageFull(f"{doing}: the disk did not take the write ({error})")
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError)):
        return StoreUnavailable(f"{doing}: {error}")
    return StoreError(f"{doing}: {error}")
