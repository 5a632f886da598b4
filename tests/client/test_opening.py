"""An app's database: found once, opened for each event loop, closed with it; from sync code, too."""

import asyncio
import gc
import os
import resource
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock import InvalidArguments, Rowlock, StoreError
from rowlock.store import open_store
from rowlock.store.engine import migrate
from rowlock.testing import testing
from support.each import each
from support.races.writing import nobody_else_writes, until_nothing_is_written


def used() -> tuple[int, int]:
    """Threads of ours and descriptors of this process."""
    gc.collect()
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("rowlock")]
    return len(ours), len(os.listdir("/proc/self/fd"))


def in_its_own_thread(work: object) -> None:
    """Run a function where no event loop runs."""
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


# --- where the file is


async def test_a_relative_path_stays_where_the_app_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    app = Rowlock("sqlite:///my%20jobs.db")

    @app.task
    async def note() -> None: ...

    await note.enqueue()
    monkeypatch.chdir(tmp_path / "second")
    await asyncio.to_thread(note.enqueue_sync)  # another loop: it opens the file again
    async with app.worker(heartbeat_seconds=0.05, lease_seconds=20) as pool, asyncio.timeout(20):
        while pool.heart.beats < 1:  # and so does the heart
            await asyncio.sleep(0.01)
        for job in await app.jobs():
            await job.wait(timeout=20)
    assert len(await app.jobs()) == 2
    await asyncio.to_thread(app.run_sync, app.close())
    await app.close()
    assert list((tmp_path / "second").iterdir()) == []
    assert [file.name for file in (tmp_path / "first").iterdir()] == ["my jobs.db"]


async def test_a_store_whose_opening_is_cancelled_is_closed_when_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat with a time limit opens one: each that came too late would keep the file open."""
    begun, go_on, check = threading.Event(), threading.Event(), migrate.check

    def held(*given: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        check(*given)

    monkeypatch.setattr(migrate, "check", held)
    opening = asyncio.create_task(open_store(f"sqlite:///{tmp_path}/jobs.db"))
    assert await asyncio.to_thread(begun.wait, 30)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    gc.disable()  # it would close the file sooner or later
    try:
        go_on.set()
        async with asyncio.timeout(30):
            while os.listdir(tmp_path) != ["jobs.db"]:
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


async def test_a_link_that_is_turned_leads_nobody_to_another_file(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "first")
    async with Rowlock(f"sqlite:///{link}/jobs.db") as app:

        @app.task
        async def note() -> None: ...

        link.unlink()
        link.symlink_to(tmp_path / "second")
        await asyncio.to_thread(note.enqueue_sync)
        assert len(await app.jobs()) == 1
        await asyncio.to_thread(app.run_sync, app.close())
    assert list((tmp_path / "second").iterdir()) == []


@each("url", ["postgresql://host/jobs", "sqlite:////tmp/jobs.db", "sqlite:///:memory:", "nonsense"])
def test_an_address_that_is_no_relative_path_stays_as_it_is(url: str) -> None:
    from rowlock.store.engine.store import absolute

    assert absolute(url, "/somewhere") == url


def test_the_path_of_the_folder_may_have_signs_that_mean_something_in_an_address() -> None:
    from rowlock.store.engine.store import absolute, file_of

    assert absolute("sqlite:///a%20b.db", "/100%25 sure") == "sqlite:////100%2525 sure/a b.db"
    assert file_of("sqlite:////100%2525 sure/a b.db") == Path("/100%25 sure/a b.db")


# --- who may read the file


@pytest.fixture
def umask() -> Iterator[None]:
    """The umask of most machines."""
    before = os.umask(0o022)
    yield
    os.umask(before)


async def some_work(file: Path) -> dict[str, int]:
    """Open a file, write to it and read from it: the modes of all files in its folder meanwhile."""
    async with Rowlock(f"sqlite:///{file}") as app:

        @app.task
        async def note() -> None: ...

        await note.enqueue()
        assert await app.jobs()
        return {found.name: stat.S_IMODE(found.stat().st_mode) for found in os.scandir(file.parent)}


@pytest.mark.usefixtures("umask")
async def test_only_its_owner_can_read_a_new_file(tmp_path: Path) -> None:
    assert await some_work(tmp_path / "jobs.db") == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


@pytest.mark.usefixtures("umask")
async def test_behind_a_link_that_leads_nowhere_the_new_file_is_as_private(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "data/jobs.db")
    await some_work(tmp_path / "jobs.db")
    assert stat.S_IMODE((tmp_path / "data/jobs.db").stat().st_mode) == 0o600


@pytest.mark.usefixtures("umask")
async def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    (tmp_path / "jobs.db").chmod(0o660)
    for _ in range(2):  # while it is empty, and with tables in it
        assert await some_work(tmp_path / "jobs.db") == {"jobs.db": 0o660, "jobs.db-wal": 0o660, "jobs.db-shm": 0o660}


# --- event loops


def test_a_loop_that_ends_leaves_nothing_open(app_url: str) -> None:
    app = Rowlock(app_url)

    @app.task
    async def note(n: int) -> None: ...

    async def enqueue_and_read(n: int) -> None:
        await note.enqueue(n=n)
        assert await app.jobs()

    def many() -> None:
        asyncio.run(enqueue_and_read(0))
        before = used()
        for n in range(1, 4):
            asyncio.run(enqueue_and_read(n))
        after = used()
        assert after[0] <= before[0], "threads"
        assert after[1] <= before[1], "descriptors"
        worked.append(True)

    worked: list[bool] = []
    in_its_own_thread(many)
    assert worked


def test_what_a_loop_left_open_is_closed_by_the_next_one(app_url: str) -> None:
    app = Rowlock(app_url)

    @app.task
    async def note(n: int) -> None: ...

    def run_and_close(n: int) -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(note.enqueue(n=n))
        loop.close()  # as asyncio.run does not: what is open in it is not told

    def many() -> None:
        for n in range(2):
            run_and_close(n)
        before = used()
        for n in range(4):
            run_and_close(n)
        for _ in range(200):  # its thread may still be on its way out
            after = used()
            if after[0] <= before[0] and after[1] <= before[1] + 1:
                worked.append(True)
                return
            threading.Event().wait(0.05)
        raise AssertionError((before, after))

    worked: list[bool] = []
    in_its_own_thread(many)
    assert worked


async def test_testing_leaves_nothing_open_that_sync_code_has_used() -> None:
    app = Rowlock()

    @app.task
    async def note() -> None: ...

    async def once() -> None:
        async with testing(app) as t:
            await asyncio.to_thread(note.enqueue_sync)
            assert len(await t.enqueued(note)) == 1

    await once()
    before = used()
    for _ in range(2):
        await once()
    after = used()
    assert after[0] <= before[0], "threads"
    assert after[1] <= before[1], "descriptors"


async def test_a_close_beside_enqueues_lets_each_of_them_happen_or_fail(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    enqueued = 0
    for turns in range(10):
        await app.open()
        beside = [asyncio.create_task(note.enqueue()) for _ in range(5)]
        for _ in range(turns % 5):
            await asyncio.sleep(0)
        await asyncio.wait_for(app.close(), 30)
        answers = await asyncio.wait_for(asyncio.gather(*beside, return_exceptions=True), 30)
        assert {type(answer) for answer in answers if isinstance(answer, BaseException)} <= {StoreError}
        enqueued += sum(not isinstance(answer, BaseException) for answer in answers)
        await app.close()  # one that came late has opened it again
    assert len(await app.jobs(limit=1000)) == enqueued


async def test_a_closed_store_says_so(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    store = await app.store()
    await app.close()
    with pytest.raises(StoreError, match="this store is closed"):
        async with store.transaction():
            pass
    with pytest.raises(StoreError, match="this store is closed"):
        await store.fetch("SELECT 1")
    await note.enqueue()  # the app opens another
    await store.close()  # closing twice is nothing


# --- sync code


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_sync_code_may_not_wait_for_the_loop_that_it_runs_in(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    async def inside() -> None:
        note.enqueue_sync()

    with pytest.raises(InvalidArguments, match="await the async call instead"):
        await asyncio.wait_for(asyncio.to_thread(app.run_sync, inside()), 30)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_code_that_exits_does_not_end_the_loop_for_sync_calls(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    async def leave() -> None:
        raise SystemExit(3)

    def twice() -> str:
        with pytest.raises(SystemExit):
            app.run_sync(leave())
        return note.enqueue_sync().id

    assert await asyncio.wait_for(asyncio.to_thread(twice), 30)


def test_an_interrupted_enqueue_sync_creates_no_job(app_url: str) -> None:
    """Ctrl-C while the database is busy."""
    app = Rowlock(app_url)

    @app.task
    async def note() -> None: ...

    note.enqueue_sync()
    held, let_go = threading.Event(), threading.Event()

    async def hold() -> None:
        async with nobody_else_writes(app_url):
            held.set()
            await asyncio.to_thread(let_go.wait, 60)

    holding = threading.Thread(target=asyncio.run, args=(hold(),))
    holding.start()
    assert held.wait(20)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            note.enqueue_sync()
    finally:
        signal.signal(signal.SIGALRM, before)
        let_go.set()
    holding.join(20)
    app.run_sync(until_nothing_is_written(app))
    assert len(app.run_sync(app.jobs())) == 1
    app.run_sync(app.close())


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_enqueue_sync_interrupted_before_it_began_creates_no_job(app_url: str) -> None:
    """Ctrl-C while the loop for sync calls is busy with something else."""
    app = Rowlock(app_url)

    @app.task
    async def note() -> None: ...

    note.enqueue_sync()
    blocked, let_go = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        let_go.wait(20)

    async def block_soon() -> None:
        asyncio.get_running_loop().call_later(0.05, block)

    app.run_sync(block_soon())
    assert blocked.wait(20)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        threading.Timer(0.8, let_go.set).start()
        with pytest.raises(KeyboardInterrupt):
            note.enqueue_sync()
    finally:
        signal.signal(signal.SIGALRM, before)
    app.run_sync(until_nothing_is_written(app))
    assert len(app.run_sync(app.jobs())) == 1
    app.run_sync(app.close())


# --- no descriptors left


async def test_without_descriptors_an_enqueue_is_committed_and_the_next_ones_work(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    async with app.worker(poll_interval_seconds=0.05) as pool:
        async with asyncio.timeout(20):
            while not pool.idle:
                await asyncio.sleep(0.01)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        await note.enqueue(n=0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # nothing more can be opened
        try:
            jobs = [await asyncio.wait_for(note.enqueue(n=n), 20) for n in range(1, 4)]
            jobs += await asyncio.wait_for(asyncio.gather(*(note.enqueue(n=n) for n in range(4, 8))), 20)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        jobs.append(await asyncio.wait_for(note.enqueue(n=8), 20))
        for job in jobs:
            await job.wait(timeout=20)
        assert sorted(job.args["n"] for job in await app.jobs(state="succeeded")) == list(range(9))
