"""Who writes on SQLite: the caller's own thread when it is alone and commits are quick, else the writer thread."""

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from rowlock.core.errors import StorageFull, StoreError
from rowlock.core.job import NewJob
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Steps, Wake, operation
from rowlock.store.engine.sqlite import store as sqlite_store
from rowlock.store.engine.sqlite import transaction
from rowlock.store.engine.sqlite.runner import CHECKPOINT_PAGES
from rowlock.store.engine.sqlite.store import SMALL, SqliteWriter
from rowlock.store.engine.store import StoreOptions, open_store
from rowlock.store.jobs import enqueue
from support.each import each

JOB = NewJob(task="t")


def one(job_id: str | None = None) -> Any:
    return enqueue.enqueue([(job_id or new_id(), "{}")], JOB)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Any]:
    store = await open_store(f"sqlite:///{tmp_path}/jobs.db", StoreOptions())
    yield store
    await store.close()


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the groups that the thread has committed."""
    sizes: list[int] = []
    write = SqliteWriter._write_group

    def counted(self: SqliteWriter, group: list[Any]) -> None:
        sizes.append(len(group))
        write(self, group)

    monkeypatch.setattr(SqliteWriter, "_write_group", counted)
    return sizes


async def count(store: Any) -> int:
    async with store.transaction() as session:
        ((found,),) = await session.fetch("SELECT count(*) FROM rowlock_jobs_live")
        return int(found)


async def run_quickly(store: Any, operation: Any) -> None:
    """Run it as on a machine that does nothing else: on a busy one commits are slow, and the thread does them."""
    store._writer._commit_seconds = 0.0
    await store.run(operation)


async def test_a_commit_waits_until_the_disk_has_it(store: Any) -> None:
    async with store.transaction() as session:
        assert await session.fetch("PRAGMA synchronous") == [(2,)]  # FULL: a power cut takes nothing that is committed


async def test_a_small_write_that_comes_alone_needs_no_other_thread(store: Any, groups: list[int]) -> None:
    for _ in range(20):
        await run_quickly(store, one())
    assert groups == []
    assert await count(store) == 20


async def test_a_large_write_goes_to_the_thread(store: Any, groups: list[int]) -> None:
    await store.run(enqueue.enqueue([(new_id(), "{}") for _ in range(SMALL + 1)], JOB))
    assert groups == [1]


async def test_writes_that_come_together_share_commits(store: Any, groups: list[int]) -> None:
    await asyncio.gather(*(store.run(one()) for _ in range(50)))
    assert sum(groups) == 50
    assert len(groups) < 25
    assert await count(store) == 50


async def test_after_a_slow_commit_even_a_small_write_goes_to_the_thread(store: Any, groups: list[int]) -> None:
    store._writer._commit_seconds = 0.5
    await store.run(one())
    assert groups == [1]
    assert store._writer._commit_seconds < 0.5  # quick ones are noticed


async def test_waiting_for_another_writer_does_not_block_the_event_loop(
    store: Any, groups: list[int], tmp_path: Path
) -> None:
    other = apsw.Connection(str(tmp_path / "jobs.db"))
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.run(one()))
    for _ in range(10):
        await asyncio.sleep(0.005)  # the loop turns meanwhile
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    await asyncio.wait_for(writing, 10)
    assert groups == [1]


async def test_a_write_waits_until_the_users_transaction_has_ended(store: Any, groups: list[int]) -> None:
    async with store.transaction() as session:
        await session.execute("CREATE TABLE mine (n)")
        writing = asyncio.create_task(store.run(one()))
        await asyncio.sleep(0.02)
        assert not writing.done()
        await session.execute("INSERT INTO mine VALUES (1)")
    await asyncio.wait_for(writing, 10)
    assert groups == [1]


async def test_a_failed_write_is_undone_and_the_next_one_works(store: Any, groups: list[int]) -> None:
    taken = new_id()
    await run_quickly(store, one(taken))
    with pytest.raises(StoreError):
        await run_quickly(store, one(taken))
    await run_quickly(store, one())
    assert groups == []
    assert await count(store) == 2


async def test_a_write_that_fails_in_a_shared_commit_undoes_no_other_write(store: Any, groups: list[int]) -> None:
    taken = new_id()
    await store.run(one(taken))
    answers = await asyncio.gather(
        *(store.run(one(taken if n == 3 else None)) for n in range(8)), return_exceptions=True
    )
    assert [isinstance(answer, StoreError) for answer in answers] == [n == 3 for n in range(8)]
    assert await count(store) == 8


async def test_the_log_is_copied_back_although_nobody_waits_for_it(store: Any, groups: list[int]) -> None:
    runner = store._runner
    runner.log_pages = CHECKPOINT_PAGES
    await store.run(one())
    assert groups == [1], "whoever finds the log long leaves the work to the thread"
    async with asyncio.timeout(10):
        while (
            runner.log_pages >= CHECKPOINT_PAGES or store._writer._turn.locked()
        ):  # the thread copies after its answer
            await asyncio.sleep(0.005)
    await run_quickly(store, one())
    assert groups == [1]


async def test_a_writer_that_waits_for_another_looks_often(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own way, up to 100 ms between looks, misses the gaps of one who writes again and again."""
    looks, uniform = list[float](), random.uniform
    monkeypatch.setattr(random, "uniform", lambda low, high: looks.append(low) or uniform(low, high))
    other = apsw.Connection(str(store.file))
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.run(one()))
    async with asyncio.timeout(10):
        while len(looks) < 20:
            await asyncio.sleep(0.01)
    assert not writing.done(), "the other still writes"
    other.execute("COMMIT")
    other.close()
    await asyncio.wait_for(writing, 10)
    assert await count(store) == 1


async def test_the_writers_thread_goes_on_after_any_exception(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end would leave everybody waiting who comes later."""

    def broken(runner: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "begin", broken)
        store._writer._commit_seconds = 1.0  # so that it goes to the thread
        with pytest.raises(StoreError, match="no room"):
            await asyncio.wait_for(store.run(one()), 10)
        with pytest.raises(StoreError, match="no room"):
            async with asyncio.timeout(10), store.transaction():
                pass
    await asyncio.wait_for(store.run(one()), 10)
    assert await count(store) == 1


async def test_a_transaction_that_cannot_be_rolled_back_is_left_by_opening_the_file_anew(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(connection: apsw.Connection) -> None:
        if connection.in_transaction:
            raise apsw.IOError("disk I/O error")

    taken = new_id()
    await store.run(one(taken))
    store._writer._commit_seconds = 0.0  # by the caller's own thread …
    for seconds in (0.0, 1.0):  # … and by the writer's
        with monkeypatch.context() as patch:
            patch.setattr(transaction, "roll_back", broken)
            store._writer._commit_seconds = seconds
            with pytest.raises(StoreError, match="UNIQUE"):
                await asyncio.wait_for(store.run(one(taken)), 10)
        await asyncio.wait_for(store.run(one()), 10)
    assert await count(store) == 3


async def test_a_write_that_comes_beside_a_close_is_committed_and_leaves_no_file_open(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store._writer
    stop = writer.stop

    def stop_and_wait() -> None:
        stop()
        writer._thread.join(20)  # so that no caller writes between the stop and the end of the thread

    monkeypatch.setattr(writer, "stop", stop_and_wait)
    writer._commit_seconds = 0.0
    writing = asyncio.create_task(store.run(one()))
    await asyncio.sleep(0)  # it has begun, and waits for the loop's next turn
    async with asyncio.timeout(20):
        await store.close()  # not in a task of its own, which would begin after the write
        await writing
    assert not store._runner._is_open
    with contextlib.closing(apsw.Connection(str(store.file))) as reading:
        assert list(reading.execute("SELECT count(*) FROM rowlock_jobs_live")) == [(1,)]


async def test_a_statement_after_the_end_of_its_transaction_is_told_so(store: Any) -> None:
    async with store.transaction() as session:
        await session.execute("CREATE TABLE mine (n)")
    with pytest.raises(StoreError, match="transaction has ended"):
        await asyncio.wait_for(session.execute("INSERT INTO mine VALUES (1)"), 10)


async def test_a_caller_cancelled_during_its_write_waits_for_the_commit(store: Any) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(steps: Any) -> Any:
        began.set()
        go_on.wait(20)
        return (yield from steps)

    op = one()
    start = op.start
    op.start = lambda: slow(start())
    store._writer._commit_seconds = 1.0  # to the thread
    writing = asyncio.create_task(store.run(op))
    assert await asyncio.to_thread(began.wait, 20)
    writing.cancel()
    await asyncio.sleep(0.05)
    writing.cancel()
    await asyncio.sleep(0.05)
    assert not writing.done()
    go_on.set()
    await asyncio.wait({writing}, timeout=20)
    assert writing.cancelled()
    assert await count(store) == 1, "it has happened before its caller went on, not after"


@operation(size=lambda: 1)
def waking() -> Steps[None]:
    yield Wake(("nobody",), "work")


@each("commit_seconds", [0.0, 1.0], ids=["caller's thread", "writer's thread"])
async def test_a_commit_that_fails_wakes_no_worker(
    store: Any, monkeypatch: pytest.MonkeyPatch, commit_seconds: float
) -> None:
    sent: list[Wake] = []
    monkeypatch.setattr(sqlite_store, "send_all", sent.extend)

    def broken(self: SqliteWriter) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteWriter, "_commit", broken)
        store._writer._commit_seconds = commit_seconds
        with pytest.raises(StorageFull):
            await asyncio.wait_for(store.run(waking()), 10)
    assert sent == []
    await asyncio.wait_for(store.run(waking()), 10)
    assert sent == [Wake(("nobody",), "work")]
