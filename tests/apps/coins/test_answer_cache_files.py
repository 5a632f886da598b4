"""The cache of answers: no state of its file fails a caller, and many processes share one file."""

import asyncio
import logging
import multiprocessing
import os
import random
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rowlock_apps.coins import answer_file as cache_file
from rowlock_apps.coins.answer_cache import AnswerCache
from rowlock_apps.coins.answer_file import PAUSE_SECONDS
from support.each import each
from support.rigs.answer_cache import Clock, Make, answers, rows, warnings


async def use(cache: AnswerCache) -> list[Any]:
    """All that a caller does; none of it may fail."""
    await cache.put("k", 1)
    found = await cache.get("k")
    await cache.put("k2", 1)
    called = await cache.get_or_call("k3", answers(3))
    await cache.forget("k2")
    return [found, called]


async def test_a_corrupt_file_is_set_aside_once(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "answers.db"
    file.write_bytes(b"this is no database" * 1000)
    (tmp_path / "answers.db-wal").write_bytes(b"nor is this its log")
    cache = make()
    assert await use(cache) == [1, 3]
    assert (tmp_path / "answers.db.corrupt").read_bytes().startswith(b"this is no database")
    (warning,) = warnings(caplog)
    assert "corrupt" in warning
    assert str(file) in warning


async def test_a_file_that_becomes_corrupt_again_turns_the_cache_off_for_a_while(
    make: Make, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "answers.db"
    cache = make()
    for expected in ([1, 3], [None, 3]):
        await asyncio.get_running_loop().run_in_executor(cache._thread, cache._file._disconnect)
        file.write_bytes(b"this is no database" * 1000)
        assert await use(cache) == expected
    assert len(warnings(caplog)) == 2
    file.unlink()
    assert await use(cache) == [None, 3]
    clock.now += PAUSE_SECONDS
    assert await use(cache) == [1, 3]
    assert len(warnings(caplog)) == 2


async def test_pages_that_are_overwritten_in_use_are_noticed(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "answers.db"
    first = make()
    for n in range(300):
        await first.put(f"k{n}", "x" * 500)
    await first.close()
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    assert await use(make()) == [1, 3]
    assert (tmp_path / "answers.db.corrupt").exists()
    assert len(warnings(caplog)) == 1


async def test_only_the_first_of_many_sets_a_corrupt_file_aside(make: Make, tmp_path: Path) -> None:
    """The second would take the new file of the first away."""
    file = tmp_path / "answers.db"
    file.write_bytes(b"this is no database" * 1000)
    quick, slow = make(), make()
    slow._file._opened = cache_file._identity(file)  # it saw the corrupt one, and then another process was quicker
    await quick.put("k", 1)
    slow._file._set_aside(sqlite3.DatabaseError("not a database"))
    assert await slow.get("k") == 1


async def test_only_their_owner_can_read_new_files_and_one_that_exists_keeps_its_mode(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "shared.db").touch()
    (tmp_path / "shared.db").chmod(0o660)
    for name in ("answers.db", "shared.db"):
        await use(make(tmp_path / name))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in os.scandir(tmp_path)}
    private = ("answers.db", "answers.db-wal", "answers.db-shm", "answers.db.lock", "shared.db.lock")
    shared = ("shared.db", "shared.db-wal", "shared.db-shm")
    assert modes == dict.fromkeys(private, 0o600) | dict.fromkeys(shared, 0o660)


@each("place", ["file/answers.db", "folder", "file/deeper/answers.db"])
async def test_a_path_where_no_file_can_be_turns_the_cache_off_with_one_warning(
    make: Make, clock: Clock, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("a regular file")
    (tmp_path / "folder").mkdir(exist_ok=True)
    caplog.clear()
    cache = make(tmp_path / place)
    assert await use(cache) == [None, 3]
    await cache.clear()
    clock.now += PAUSE_SECONDS
    assert await use(cache) == [None, 3]
    (warning,) = warnings(caplog)
    assert f"{tmp_path / place} cannot be used" in warning
    assert (tmp_path / "file").read_text() == "a regular file"


async def test_a_database_of_another_program_is_left_alone(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE answers (key, value, expires)")
    before = file.read_bytes()
    assert await use(make(file)) == [None, 3]
    assert file.read_bytes() == before
    assert "another program" in warnings(caplog)[0]


async def test_a_text_that_the_disk_has_changed_is_a_miss(make: Make, tmp_path: Path) -> None:
    cache = make()
    await cache.put("k", {"a": 1})
    with closing(sqlite3.connect(tmp_path / "answers.db")) as other, other:
        other.execute("UPDATE answers SET value = substr(value, 2)")
    assert await cache.get("k") is None
    assert await cache.get_or_call("k", answers(2)) == 2
    assert await cache.get("k") == 2


async def test_another_writer_is_waited_for_but_not_in_the_loop(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make()
    await cache.put("k", 1)
    with closing(sqlite3.connect(tmp_path / "answers.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await cache.get("k") == 1, "a reader needs no lock"
        writing = asyncio.create_task(cache.put("k", 2))
        for _ in range(10):
            await asyncio.sleep(0.005)  # the loop turns meanwhile
        assert not writing.done()
        other.execute("ROLLBACK")
    await asyncio.wait_for(writing, 10)
    assert await cache.get("k") == 2
    assert warnings(caplog) == []


async def test_a_cache_file_that_another_program_keeps_locked_raises_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "BUSY_SECONDS", 0.05)
    cache = make()
    await cache.put("k", 1)
    with closing(sqlite3.connect(tmp_path / "answers.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await cache.put("k", 2)
        assert await cache.get("k") is None


async def test_the_loops_thread_never_touches_the_file(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    connect = sqlite3.connect

    def noted(*args: Any, **options: Any) -> sqlite3.Connection:
        threads.add(threading.current_thread())
        return connect(*args, **options)

    monkeypatch.setattr(sqlite3, "connect", noted)  # and a connection refuses every other thread by itself
    cache = make()
    await use(cache)
    await cache.clear()
    await cache.close()
    assert len(threads) == 1
    assert threading.current_thread() not in threads


class Raising(logging.Handler):
    """Makes an error of every warning but that of the one process that finds the corrupt file first."""

    def emit(self, record: logging.LogRecord) -> None:
        assert "was corrupt" in record.getMessage()


def in_a_process(path: str, number: int, start: Any) -> None:
    """200 rounds of puts and gets; an exit code other than 0 if anything is wrong."""
    logging.getLogger("rowlock.cache").addHandler(Raising())

    async def rounds() -> None:
        cache, draw = AnswerCache(path), random.Random(number)
        for n in range(200):
            own, shared = f"own {number} {n}", f"shared {draw.randrange(20)}"
            await cache.put(own, [own] * draw.randrange(1, 50))
            await cache.put(shared, {"key": shared, "by": number, "filler": shared * draw.randrange(50)})
            assert (await cache.get(own))[0] == own
            for _ in range(2):
                asked = f"shared {draw.randrange(20)}"
                found = await cache.get(asked)
                assert found is None or found["key"] == asked
                assert found is None or found["filler"].replace(asked, "") == ""
            if n % 50 == 49:
                await cache.forget(shared)
        await cache.close()

    start.wait(60)
    asyncio.run(rounds())


@pytest.mark.parametrize("state", ["absent", "corrupt"])
async def test_many_processes_share_one_file(make: Make, tmp_path: Path, state: str) -> None:
    file = tmp_path / "answers.db"
    if state == "corrupt":
        file.write_bytes(b"this is no database" * 1000)
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(4)
    processes = [spawn.Process(target=in_a_process, args=(str(file), n, start)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, 100)
    assert [process.exitcode for process in processes] == [0] * 4
    cache = make(clock=time.time)
    for number in range(4):
        for n in range(0, 200, 20):
            assert (await cache.get(f"own {number} {n}"))[0] == f"own {number} {n}"
    assert rows(file, "PRAGMA integrity_check") == "ok"
    assert rows(file, "SELECT bytes - (SELECT sum(size) FROM answers) FROM total") == 0
    assert [rows(file, f"PRAGMA {name}") for name in ("auto_vacuum", "journal_mode")] == [2, "wal"]
