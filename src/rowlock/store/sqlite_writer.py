"""SQLite's one writer: a thread that commits whatever is waiting in one transaction.

Group commit is what makes `synchronous=FULL` fast: one fsync serves every operation that arrived while the last one was
being written. Each operation runs in its own savepoint, so one that fails takes no other down. A user's transaction has
the thread to itself until it ends, or until its time is up.

A small operation that comes alone is written by its caller's own thread: waking the writer and being woken by it costs
as much as the fsync. That blocks the caller's event loop for one commit, so it is done only while commits are quick.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from rowlock.core.errors import RowlockError, StoreError, TransactionTooLong
from rowlock.store.bells import ring
from rowlock.store.operation import Operation, Ring, Row, drive
from rowlock.store.session import BaseSession
from rowlock.store.sqlite_runner import Runner, roll_back, translate, user_rows, user_values

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

BUSY_SECONDS = 30.0
GROUP = 256  # operations in one commit, at most
SMALL = 100  # jobs that an operation may touch to be written by its caller
QUICK_SECONDS = 0.001  # while a commit takes longer on average, all go to the thread


Do = Callable[[Runner, list[Ring]], Any]
Answer = tuple[Any, BaseException | None]  # what it gave, or how it failed


class _Work:
    """One request to the writer thread, and the future that its caller waits on."""

    __slots__ = ("answer", "do", "loop", "session")

    def __init__(self, do: Do, session: SqliteSession | None = None) -> None:
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
        self._turn = threading.Lock()  # who has it may use the connection
        self._unanswered = self._arriving = 0  # given to the thread; about to be written by their callers
        self._commit_seconds = 0.0  # mean of late
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="rowlock-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in the next commit."""

        def do(runner: Runner, rings: list[Ring]) -> T:
            return drive(op.start(), runner.execute, rings.append)

        if 0 < op.size <= SMALL and await self._alone() and (answer := self._write_here(do)):
            value, failure = answer
            if failure is not None:
                raise failure
            return value  # type: ignore[no-any-return]
        work = _Work(do)
        self._unanswered += 1
        try:
            self._inbox.put(work)
            return await work.answer  # type: ignore[no-any-return]
        finally:
            self._unanswered -= 1

    async def _alone(self) -> bool:
        """Whether nobody else in this loop wants to write at this moment: a crowd does better in one group."""
        self._arriving += 1
        try:
            await asyncio.sleep(0)  # whoever is about to ask gets to do so
            return self._arriving == 1 and not self._unanswered and self._commit_seconds < QUICK_SECONDS
        finally:
            self._arriving -= 1

    def _write_here(self, do: Do) -> Answer | None:
        """Write in the caller's thread; None if that would mean to wait for somebody, or to copy the log back."""
        runner = self.runner
        if runner.log_is_long or not self._turn.acquire(blocking=False):
            return None
        try:
            if not runner.begin_at_once():
                return None
            answers, rings = self._write([do])
        finally:
            self._turn.release()
        _ring(rings)
        return answers[0]

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
                with self._turn:
                    self._serve(session, group[0])
            else:
                self._commit(group)

    def _commit(self, group: list[_Work]) -> None:
        """Run a group of requests in one transaction; answer each only after the commit."""
        with self._turn:
            answers, rings = list[Answer](), list[Ring]()
            try:
                self._begin()
            except apsw.Error as error:
                answers = [(None, translate(error, "write"))] * len(group)
            else:
                answers, rings = self._write([work.do for work in group])
            _ring(rings)
            for work, (value, failure) in zip(group, answers, strict=True):
                work.resolve(value, failure)
            self.runner.checkpoint()

    def _write(self, group: list[Do]) -> tuple[list[Answer], list[Ring]]:
        """Run a group in the open transaction and commit it; the answer of each, and who is to be rung."""
        rings: list[Ring] = []
        try:
            alone = len(group) == 1
            answers = [(do(self.runner, rings), None) if alone else self._in_savepoint(do, rings) for do in group]
            began = time.monotonic()
            self.runner.connection.execute("COMMIT")
            self._commit_seconds += 0.05 * (time.monotonic() - began - self._commit_seconds)
        except BaseException as error:
            roll_back(self.runner.connection)
            cause = translate(error, "write") if isinstance(error, apsw.Error) else error
            return [(None, cause)] * len(group), []
        return answers, rings

    def _in_savepoint(self, do: Do, rings: list[Ring]) -> Answer:
        """One of several requests: if it fails, the others go on."""
        connection = self.runner.connection
        connection.execute("SAVEPOINT one")
        answer: Answer
        try:
            answer = do(self.runner, rings), None
        except (apsw.FullError, apsw.IOError, apsw.BusyError):
            raise
        except Exception as error:
            connection.execute("ROLLBACK TO one")
            answer = None, translate(error, "write") if isinstance(error, apsw.Error) else error
        connection.execute("RELEASE one")
        return answer

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
                    "on SQLite it holds the only writer lock; do slow work before it, or raise the setting"
                    " worker.heartbeat_seconds, a third of which it may take"
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
                    _ring(session.rings)
            if not connection.in_transaction:
                return


def _ring(rings: list[Ring]) -> None:
    for bells in rings:
        ring(bells.bells, bells.what)


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

    def seconds_left(self) -> float:
        """How long to wait before looking again whether its time is up."""
        return 0.5 if self.over is None else 0.0

    def too_long(self) -> RowlockError:
        """Why it is over."""
        assert self.over is not None
        return self.over

    async def run(self, op: Operation[T]) -> T:
        """Run an operation inside this transaction."""
        return await self._do(lambda runner, rings: drive(op.start(), runner.execute, rings.append))

    async def execute(self, sql: str, *args: Any) -> None:
        """The user's own statement; parameters are $1, $2, … as on PostgreSQL, or ?."""
        await self.fetch(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """The user's own query."""
        values = user_values(sql, args)
        return await self._do(lambda runner, rings: user_rows(runner.connection, sql, values))

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
