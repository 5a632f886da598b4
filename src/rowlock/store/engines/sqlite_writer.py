"""SQLite's one writer: a thread that commits all waiting operations in one transaction.

Group commit is what makes `synchronous=FULL` fast: one fsync serves every operation that arrived while the last one was
being written. Each operation runs in its own savepoint, so one that fails takes no other down. A user's transaction has
the thread to itself until it ends, or until its time is up.

A small operation that comes alone is written by its caller's own thread: waking the writer and being woken by it costs
as much as the fsync. That blocks the caller's event loop for one commit, so it is done only while commits are quick.

A caller that is cancelled while its request waits withdraws the request; one that is cancelled while the request is
being written waits for the commit. Every request is answered, also by a writer that is being closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

import apsw

from rowlock.core.errors import RowlockError, StoreError, TransactionTooLong
from rowlock.store.engines.dialects import SQLITE
from rowlock.store.engines.operation import Operation, Wake, drive
from rowlock.store.engines.sqlite_runner import Runner, roll_back, translate
from rowlock.store.engines.sqlite_session import Do, Reply, SqliteSession, Work
from rowlock.store.engines.wakeups import send_wakeups

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

BUSY_SECONDS = 30.0
CLOSE_SECONDS = 10.0
GROUP = 256  # operations in one commit, at most
SMALL = 100  # jobs that an operation may touch to be written by its caller
QUICK_SECONDS = 0.001  # while a commit takes longer on average, all go to the thread


class Writer:
    """The thread, its inbox and its connection."""

    def __init__(self, runner: Runner, transaction_seconds: float) -> None:
        self.runner, self._transaction_seconds = runner, transaction_seconds
        self._turn = runner.turn  # who has it may use the connection
        self._unanswered = self._arriving = 0  # given to the thread; about to be written by their callers
        self._commit_seconds = 0.0  # mean of late
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._closing = self._over = False
        self._thread = threading.Thread(target=self._write_until_closed, name="rowlock-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in the next commit."""
        do = partial(drive, op, SQLITE)
        if 0 < op.size <= SMALL and await self._alone() and (answer := self._write_here(do)):
            value, failure = answer
            if failure is not None:
                raise failure
            return value  # type: ignore[no-any-return]
        self._unanswered += 1
        try:
            return await self._hand_over(Work(do)).wait()  # type: ignore[no-any-return]
        finally:
            self._unanswered -= 1

    def _hand_over(self, work: Work) -> Work:
        """Give a request to the thread. One that comes after its end is answered here."""
        self._inbox.put(work)
        if self._over:
            self._refuse_the_rest()
        return work

    async def _alone(self) -> bool:
        """Whether no other task of this event loop wants to write at this moment: several do better in one group
        commit."""
        self._arriving += 1
        try:
            await asyncio.sleep(0)  # tasks that are about to make a request run first
            return self._arriving == 1 and not self._unanswered and self._commit_seconds < QUICK_SECONDS
        finally:
            self._arriving -= 1

    def _write_here(self, do: Do) -> Reply | None:
        """Write in the caller's thread; None if that would mean to wait for somebody, or to copy the log back."""
        runner = self.runner
        if runner.log_is_long or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._closing or not self._begin_at_once():
                return None
            answers, wakes = self._write([do])
        finally:
            self._turn.release()
        _send(wakes)
        return answers[0]

    def _begin_at_once(self) -> bool:
        try:
            self.runner.open()
            return self.runner.begin_at_once()
        except (apsw.Error, StoreError):  # the thread meets it too, and says what it is
            return False

    async def begin(self) -> SqliteSession:
        """Wait for the writer lock and open a transaction of its own."""
        session = SqliteSession()
        opening = Work(lambda runner, wakes: None, session)
        try:
            await self._hand_over(opening).wait()
        except asyncio.CancelledError:
            if not opening.withdrawn:
                await session.end("ROLLBACK")
            raise
        return session

    def stop(self) -> None:
        """Take no more; the thread finishes what is waiting and closes the file."""
        self._closing = True
        self._inbox.put(None)

    async def close(self) -> None:
        """Stop, and wait for it; not for ever, where another process keeps the file locked."""
        while self._arriving:  # they have begun, and hand over in this turn of the loop
            await asyncio.sleep(0)
        self.stop()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _write_until_closed(self) -> None:
        for group in self._groups():
            try:
                with self._turn:
                    self._carry_out(group)
            except BaseException as error:  # of any kind: without this thread every caller would wait for ever
                log.exception("a write failed in an unexpected way")
                failure = StoreError(f"write: {error!r}")
                for work in group:
                    if work.session is not None:
                        work.session.end_with(failure)
                    work.resolve(error=failure)
        with self._turn:
            self.runner.close()
        self._over = True
        self._refuse_the_rest()

    def _groups(self) -> Iterator[list[Work]]:
        """What is to be written together: all that waits, at most GROUP; a user's transaction for itself."""
        group: list[Work] = []
        while True:
            try:
                work = self._inbox.get(block=not group)
            except queue.Empty:
                yield group
                group = []
                continue
            if group and (work is None or work.session is not None or len(group) == GROUP):
                yield group
                group = []
            if work is None:
                return
            if work.session is not None:
                yield [work]
            else:
                group.append(work)

    def _refuse_the_rest(self) -> None:
        """Answer what came too late."""
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._inbox.get_nowait()
                if work is not None:
                    work.resolve(error=StoreError("this store is closed"))

    def _carry_out(self, group: list[Work]) -> None:
        try:
            if (session := group[0].session) is not None:
                self._serve(session, group[0])
            else:
                self._commit(group)
        finally:
            self._undo()  # nothing, where all went well

    def _undo(self) -> None:
        """Roll back what is open. Where not even that works, the next write opens the file anew."""
        try:
            roll_back(self.runner.connection)
        except apsw.Error:
            log.exception("a transaction could not be rolled back; the file is opened again")
            with contextlib.suppress(apsw.Error):
                self.runner.close()

    def _commit(self, group: list[Work]) -> None:
        """Run a group of requests in one transaction; answer each only after the commit."""
        answers, wakes = list[Reply](), list[Wake]()
        try:
            self._begin()
        except (apsw.Error, StoreError) as error:
            answers = [(None, translate(error, "write"))] * len(group)
        else:
            group = [work for work in group if work.take()]  # after the wait: some may have given up
            answers, wakes = self._write([work.do for work in group])
        _send(wakes)
        for work, (value, failure) in zip(group, answers, strict=True):
            work.resolve(value, failure)
        self.runner.checkpoint()

    def _write(self, group: list[Do]) -> tuple[list[Reply], list[Wake]]:
        """Run a group in the open transaction and commit it; the answer of each, and whom to wake."""
        wakes: list[Wake] = []
        try:
            alone = len(group) == 1
            answers = [(do(self.runner, wakes), None) if alone else self._in_savepoint(do, wakes) for do in group]
            began = time.monotonic()
            self.runner.connection.execute("COMMIT")
            self._commit_seconds += 0.05 * (time.monotonic() - began - self._commit_seconds)
        except BaseException as error:
            self._undo()
            cause = translate(error, "write") if isinstance(error, apsw.Error) else error
            return [(None, cause)] * len(group), []
        return answers, wakes

    def _in_savepoint(self, do: Do, wakes: list[Wake]) -> Reply:
        """Run one of several requests in a savepoint: if it fails, the other requests go on."""
        connection = self.runner.connection
        connection.execute("SAVEPOINT one")
        answer: Reply
        try:
            answer = do(self.runner, wakes), None
        except (apsw.FullError, apsw.IOError, apsw.BusyError):
            raise
        except Exception as error:
            connection.execute("ROLLBACK TO one")
            answer = None, translate(error, "write") if isinstance(error, apsw.Error) else error
        connection.execute("RELEASE one")
        return answer

    def _begin(self) -> None:
        """BEGIN IMMEDIATE, so that a busy database is met here and not in the middle; own retry with jitter on top."""
        self.runner.open()
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.runner.connection.execute("BEGIN IMMEDIATE")
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.001, 0.02))

    def _serve(self, session: SqliteSession, first: Work) -> None:
        """Give the writer to one user's transaction until it ends or its time is up."""
        try:
            self._begin()
        except (apsw.Error, StoreError) as error:
            session.end_with(translate(error, "transaction"))
            first.resolve(error=session.over)
            return
        connection = self.runner.connection
        if not first.take():  # its caller did not wait for it
            roll_back(connection)
            return
        first.resolve()
        deadline = time.monotonic() + self._transaction_seconds
        while connection.in_transaction:
            try:
                work = session.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                roll_back(connection)
                session.end_with(
                    TransactionTooLong(
                        f"the transaction was open for {self._transaction_seconds:g} s and was rolled back: "
                        "on SQLite it holds the only writer lock; do slow work before it, or raise the setting"
                        " worker.heartbeat_seconds, a third of which it may take"
                    )
                )
                return
            if not work.take():
                continue
            try:
                value = work.do(self.runner, session.wakes)
            except Exception as error:
                failure = translate(error, "transaction") if isinstance(error, apsw.Error) else error
                if not connection.in_transaction:
                    session.end_with(failure if isinstance(failure, RowlockError) else StoreError(str(failure)))
                work.resolve(error=failure)
            else:
                work.resolve(value)
        if session.over is None:
            _send(session.wakes)
        session.end_with(StoreError("this transaction has ended"))


def _send(wakes: list[Wake]) -> None:
    for wake in wakes:
        send_wakeups(wake.addresses, wake.message)
