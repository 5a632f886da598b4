"""SQLite: one job is read in the caller's thread as long as that waits for nobody; other reads have a thread."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from rowlock.api.access import own_jobs
from rowlock.core.errors import StoreError
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Wake
from rowlock.store.engine.sqlite.runner import Runner
from rowlock.store.engine.sqlite.store import SqliteStore
from rowlock.store.engine.store import StoreOptions


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(f"sqlite:///{tmp_path}/jobs.db", StoreOptions(migrate=True))
    await opened.fetch("SELECT 1")  # the first read opens the reader's connection
    yield opened
    await opened.close()


def thread(runner: Runner, wakes: list[Wake]) -> int:
    return threading.get_ident()


async def test_one_job_is_read_in_the_callers_thread(store: SqliteStore) -> None:
    threads = list[int]()

    def trace(cursor: Any, sql: str, bindings: Any) -> bool:
        threads.append(threading.get_ident())
        return True

    assert store._reader.runner is not None
    store._reader.runner.connection.exec_trace = trace
    assert await store.run(own_jobs.get("ana", new_id())) is None
    assert set(threads) == {threading.get_ident()}
    threads.clear()
    await store.fetch("SELECT 1")
    assert threads
    assert threading.get_ident() not in threads


async def test_reading_one_job_does_not_hold_up_the_event_loop_while_another_read_is_under_way(
    store: SqliteStore,
) -> None:
    release = threading.Event()
    assert store._reader.runner is not None
    store._reader.runner.connection.create_scalar_function("hold", lambda: release.wait(30))
    try:
        slow = asyncio.ensure_future(store.fetch("SELECT hold()"))
        async with asyncio.timeout(20):
            while not store._reader.runner.turn.locked():
                await asyncio.sleep(0.001)
        one = asyncio.ensure_future(store.run(own_jobs.get("ana", new_id())))
        await store.execute("CREATE TABLE sign (n)")  # the event loop and the writer go on meanwhile
        assert not slow.done()
        assert not one.done()
    finally:
        release.set()
    await slow
    assert await one is None


async def test_a_read_that_another_connection_holds_up_goes_to_the_readers_thread(store: SqliteStore) -> None:
    here = threading.get_ident()

    def busy_here(runner: Runner, wakes: list[Wake]) -> int:
        if threading.get_ident() == here:
            raise apsw.BusyError("another connection has the file")
        return threading.get_ident()

    assert await store._reader.run_one(busy_here) != here


async def test_after_a_slow_read_the_next_ones_go_to_the_readers_thread_for_a_while(store: SqliteStore) -> None:
    def slow(runner: Runner, wakes: list[Wake]) -> int:
        time.sleep(0.02)  # as a disk that answers late
        return threading.get_ident()

    here = threading.get_ident()
    store._reader._slow_until = 0.0
    assert await store._reader.run_one(slow) == here
    assert await store._reader.run_one(thread) != here
    store._reader._slow_until = time.monotonic()
    assert await store._reader.run_one(thread) == here


async def test_a_store_that_is_closed_before_a_read_begins_stays_closed(store: SqliteStore) -> None:
    reading = asyncio.ensure_future(store.run(own_jobs.get("ana", new_id())))
    await asyncio.sleep(0)  # it has begun, and lets other tasks run first
    store._closed = True
    try:
        with pytest.raises(StoreError, match="closed"):
            await reading
    finally:
        store._closed = False
