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
import threading
import time
from functools import partial
from typing import TypeVar

import apsw

from rowlock.core.errors import StoreError
from rowlock.store.engine.dialects import SQLITE
from rowlock.store.engine.operation import Operation, Wake, drive
from rowlock.store.engine.sqlite.errors import translate
from rowlock.store.engine.sqlite.requests import Reply, SqliteSession, Work, groups
from rowlock.store.engine.sqlite.runner import Runner
from rowlock.store.engine.sqlite.transaction import begin, in_savepoint, serve, undo, undone_if_open
from rowlock.store.engine.sqlite.wakeups import send_all

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

CLOSE_SECONDS = 10.0
SMALL = 100  # jobs that an operation may touch to be written by its caller
QUICK_SECONDS = 0.001  # while a commit takes longer on average, all go to the thread


class Writer:
    """The thread, its inbox and its connection."""

    def __init__(self, runner: Runner, transaction_seconds: float) -> None:
        self.runner, self._transaction_seconds = runner, transaction_seconds
        self._turn = runner.turn  # the lock of the connection
        self._unanswered = self._arriving = 0  # operations given to the thread; operations whose callers may write them
        self._commit_seconds = 0.0  # moving average of how long a commit takes
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._over = False
        self._thread = threading.Thread(target=self._write_until_closed, name="rowlock-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def run(self, op: Operation[T]) -> T:
        """Run an operation in the next commit."""
        if not (0 < op.size <= SMALL and await self._alone() and self._begin_here()):
            self._unanswered += 1
            try:
                return await self._hand_over(Work(partial(drive, op, SQLITE))).wait()  # type: ignore[no-any-return]
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

    def _begin_here(self) -> bool:
        """Begin a transaction in the caller's thread; False if that would have to wait for another thread or process,
        or if the write-ahead log is due to be copied back."""
        if self.runner.log_is_long or not self._turn.acquire(blocking=False):
            return False
        begun = False
        try:
            self.runner.open()
            begun = self.runner.begin_at_once()
        except (apsw.Error, StoreError):  # the writer thread gets this error, too, and reports it
            pass
        finally:
            if not begun:
                self._turn.release()
        return begun

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
        self._inbox.put(None)

    async def close(self) -> None:
        """Stop, and wait for the thread: ten seconds at most, because another process may keep the file locked."""
        while self._arriving:  # these would open the file again: each writes or hands over in the loop's next turn
            await asyncio.sleep(0)
        self.stop()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _write_until_closed(self) -> None:
        for group in groups(self._inbox):
            try:
                with self._turn, undone_if_open(self.runner):
                    if (session := group[0].session) is not None:
                        self._serve(session, group[0])
                    else:
                        self._write_group(group)
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

    def _refuse_the_rest(self) -> None:
        """Answer the requests that came after the end."""
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._inbox.get_nowait()
                if work is not None:
                    work.resolve(error=StoreError("this store is closed"))

    def _write_group(self, group: list[Work]) -> None:
        """Run a group of requests in one transaction; answer each only after the commit."""
        answers, wakes = list[Reply](), list[Wake]()
        try:
            begin(self.runner)
        except (apsw.Error, StoreError) as error:
            answers = [(None, translate(error, "write"))] * len(group)
        else:
            group = [work for work in group if work.take()]  # without requests that were withdrawn meanwhile
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
        if first.take():  # else its caller did not wait for it, and the transaction is rolled back
            first.resolve()
            serve(self.runner, session, self._transaction_seconds)
