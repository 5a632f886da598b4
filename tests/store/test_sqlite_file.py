"""An SQLite file that is deleted, moved or replaced while it is open: nothing is accepted that is in no file."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rowlock import Rowlock
from rowlock.core.config import Settings
from rowlock.core.errors import StoreUnavailable
from rowlock.store.engine.sqlite.filesystem import CHECK_SECONDS
from rowlock.store.engine.sqlite.reader import SAME_SECONDS
from rowlock.store.engine.store import StoreOptions, open_store
from support.each import each

Change = Callable[[Path], object]


def delete(file: Path) -> None:
    for name in ("", "-wal", "-shm"):
        Path(f"{file}{name}").unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def move_the_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))


def replace(file: Path) -> None:
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    os.replace(copy, file)


def there(file: Path) -> bool:
    return file.exists()


CHANGES: list[Change] = [delete, move, move_the_folder, replace]


def name_of(function: Callable[..., object]) -> str:
    return function.__name__


changed = each("change", CHANGES, ids=name_of)


@pytest.fixture
def new_file(sqlite_template: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes migrated files, each in a folder of its own."""

    def make() -> Path:
        folder = Path(tempfile.mkdtemp(dir=tmp_path)) / "data"
        folder.mkdir()
        return Path(shutil.copy(sqlite_template, folder / "jobs.db"))

    return make


@asynccontextmanager
async def opened(file: Path) -> AsyncIterator[Rowlock]:
    """An app that has the file open, with two jobs in it."""
    worker = {"heartbeat_seconds": 0.3, "lease_seconds": 1, "poll_interval_seconds": 0.2}
    app = Rowlock(settings=Settings.model_validate({"database": f"sqlite:///{file}", "worker": worker}))

    @app.task
    async def work(n: int = 0) -> int:
        return n

    async with app:
        await work.enqueue()
        await asyncio.to_thread(work.enqueue_sync)  # opens a store of its own
        yield app
        await app._stores.close_everywhere()


@pytest.fixture
def file(new_file: Callable[[], Path]) -> Path:
    return new_file()


@pytest.fixture
async def app(file: Path) -> AsyncIterator[Rowlock]:
    async with opened(file) as app:
        yield app


async def one(app: Rowlock) -> None:
    await app.registry.get("work").enqueue()


async def one_in_the_writer_thread(app: Rowlock) -> None:
    await asyncio.gather(*(app.registry.get("work").enqueue() for _ in range(3)))


async def many(app: Rowlock) -> None:
    await app.registry.get("work").enqueue_many([{"n": n} for n in range(500)])


async def with_a_key(app: Rowlock) -> None:
    await app.registry.get("work").using(key="k", unique="until_done").enqueue()


async def in_a_transaction(app: Rowlock) -> None:
    async with app.transaction() as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS mine (n int)")
        await app.registry.get("work").enqueue()


async def in_sync_code(app: Rowlock) -> None:
    await asyncio.to_thread(app.registry.get("work").enqueue_sync)


async def in_a_batch(app: Rowlock) -> None:
    async with app.batch("b") as batch:
        await app.registry.get("work").using(batch=batch).enqueue()


async def a_schedule(app: Rowlock) -> None:
    await app.schedules.add("s", "work", cron="* * * * *")


WAYS: list[Callable[[Rowlock], Awaitable[None]]] = [
    *(one, one_in_the_writer_thread, many, with_a_key, in_a_transaction, in_sync_code, in_a_batch, a_schedule)
]


@changed
@each("way", WAYS, ids=name_of)
async def test_an_enqueue_into_a_file_that_is_gone_fails_and_says_why(
    new_file: Callable[[], Path], change: Change, way: Callable[[Rowlock], Awaitable[None]]
) -> None:
    file = new_file()
    async with opened(file) as app:
        change(file)
        await asyncio.sleep(2 * CHECK_SECONDS)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"jobs\.db was deleted, moved or replaced while it was open"):
                await way(app)
    assert there(file) == (change is replace), "a new file was created"


async def test_the_file_is_used_again_once_it_is_put_back(app: Rowlock, file: Path) -> None:
    move(file)
    await asyncio.sleep(2 * CHECK_SECONDS)
    with pytest.raises(StoreUnavailable, match="there is no file at this path any more"):
        await one(app)
    file.with_name("elsewhere.db").rename(file)
    await one(app)
    assert len(await app.jobs()) == 3


@changed
async def test_a_read_does_not_answer_from_a_file_that_is_gone(new_file: Callable[[], Path], change: Change) -> None:
    """Also the first one, whose connection is opened when the file is gone already."""
    file = new_file()
    async with opened(file) as app:
        change(file)
        with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
            await app.jobs()


async def test_a_read_soon_notices_that_the_file_is_gone(app: Rowlock, file: Path) -> None:
    assert len(await app.jobs()) == 2
    delete(file)
    with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
        async with asyncio.timeout(10 * SAME_SECONDS):
            while True:
                await app.jobs()


@changed
async def test_a_worker_whose_file_is_gone_claims_nothing_more_and_logs_why(
    new_file: Callable[[], Path], change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    file = new_file()
    async with opened(file) as app, app.worker():
        job = (await app.jobs())[0]
        await job.wait(timeout=10)
        change(file)
        async with asyncio.timeout(20):
            while not (said := [record.getMessage() for record in caplog.records if "outage" in record.getMessage()]):
                await asyncio.sleep(0.05)
    assert "jobs.db was deleted, moved or replaced while it was open" in said[0]
    assert not [record for record in caplog.records if "malformed" in record.getMessage()]


async def test_another_store_of_the_process_does_not_open_what_is_there_instead(app: Rowlock, file: Path) -> None:
    """Two files under one name have one write-ahead log, in which each would find the other's pages."""
    replace(file)
    with pytest.raises(StoreUnavailable, match="there is another file at this path now"):
        await open_store(f"sqlite:///{file}", StoreOptions())
    await app._stores.close_everywhere()
    await (await open_store(f"sqlite:///{file}", StoreOptions())).close()


def fork() -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


async def test_a_fork_does_not_create_a_new_file_in_place_of_one_that_is_gone(app: Rowlock, file: Path) -> None:
    """A fork closes the file, and the next write opens it again."""
    delete(file)
    fork()
    with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced"):
        await one(app)
    assert not there(file)
