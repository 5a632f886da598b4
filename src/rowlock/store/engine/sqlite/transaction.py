"""Transactions on the connection of SQLite's writer, for a group of requests or for a user."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import time

import apsw

from rowlock.core.errors import RowlockError, StoreError, TransactionTooLong
from rowlock.store.engine.operation import Wake
from rowlock.store.engine.sqlite.requests import Do, Reply, SqliteSession
from rowlock.store.engine.sqlite.runner import Runner, roll_back, translate
from rowlock.store.engine.sqlite.wakeups import send_all

log = logging.getLogger("rowlock.store")

BUSY_SECONDS = 30.0  # how long to retry BEGIN while another process is writing


def begin(runner: Runner) -> None:
    """BEGIN IMMEDIATE, so that a busy database shows here and not at a later statement. Retries for BUSY_SECONDS."""
    runner.open()
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            runner.connection.execute("BEGIN IMMEDIATE")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))


def undo(runner: Runner) -> None:
    """Roll back an open transaction. If that fails, close the file; the next write reopens it."""
    try:
        roll_back(runner.connection)
    except apsw.Error:
        log.exception("a transaction could not be rolled back; the database file will be reopened")
        with contextlib.suppress(apsw.Error):
            runner.close()


def in_savepoint(runner: Runner, do: Do, wakes: list[Wake]) -> Reply:
    """Run one of several requests in a savepoint, so that if it fails, the others go on."""
    connection = runner.connection
    connection.execute("SAVEPOINT one")
    answer: Reply
    try:
        answer = do(runner, wakes), None
    except (apsw.FullError, apsw.IOError, apsw.BusyError):
        raise
    except Exception as error:
        connection.execute("ROLLBACK TO one")
        answer = None, translate(error, "write") if isinstance(error, apsw.Error) else error
    connection.execute("RELEASE one")
    return answer


def serve(runner: Runner, session: SqliteSession, seconds: float) -> None:
    """Run the requests of a user's transaction, which is open on this connection, until it ends or `seconds` are up."""
    connection, deadline = runner.connection, time.monotonic() + seconds
    while connection.in_transaction:
        try:
            work = session.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            roll_back(connection)
            why = (
                f"the transaction was open for {seconds:g} s and was rolled back: on SQLite it holds the only writer"
                " lock, for at most a third of worker.heartbeat_seconds; do slow work before the transaction, or raise"
                " that setting"
            )
            session.end_with(TransactionTooLong(why))
            return
        if not work.take():
            continue
        try:
            value = work.do(runner, session.wakes)
        except Exception as error:
            failure = translate(error, "transaction") if isinstance(error, apsw.Error) else error
            if not connection.in_transaction:
                session.end_with(failure if isinstance(failure, RowlockError) else StoreError(str(failure)))
            work.resolve(error=failure)
        else:
            work.resolve(value)
    if session.over is None:
        send_all(session.wakes)
    session.end_with(StoreError("this transaction has ended"))
