"""The cache of answers: it forgets in time and in order, it stays small, and no state of its file fails a caller."""

import asyncio
import gc
import json
import logging
import multiprocessing
import os
import random
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rowlock.core.errors import ConfigError, InvalidArguments
from rowlock.governance import cache as cache_module
from rowlock.governance.cache import PAUSE_SECONDS, ROW_BYTES, AnswerCache


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Make = Callable[..., AnswerCache]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def make(tmp_path: Path, clock: Clock) -> AsyncIterator[Make]:
    """Caches on one file, each as another process would have it."""
    made: list[AnswerCache] = []

    def one(path: Path = tmp_path / "answers.db", **options: Any) -> AnswerCache:
        made.append(AnswerCache(path, **{"clock": clock} | options))
        return made[-1]

    yield one
    for cache in made:
        await cache.close()


def rows(path: Path, query: str = "SELECT count(*) FROM answers") -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()[0]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Keys


def test_a_key_is_its_parts_in_order() -> None:
    parts = {"source_id": "ebay", "year": 1921, "mintmark": "D", "denomination": "1", "series": "Morgan"}
    assert AnswerCache.key(**parts, title="MS 63") == "ebay|1921|D|1|Morgan|MS 63"
    assert AnswerCache.key(**parts | {"mintmark": None}, title="") == "ebay|1921||1|Morgan|"


def test_different_parts_never_make_the_same_key() -> None:
    texts = ["", "a", "|", "\\", "\\|", "a|", "|a", "a\\", "\\\\", "||"]
    keys = [AnswerCache.key(x=x, y=y, z=z) for x in texts for y in texts for z in texts]
    assert len(set(keys)) == len(texts) ** 3


# Values


@pytest.mark.parametrize("value", [0, False, "", [], {"a": [1, 2.5, None, "ü\ud800|"]}, "x" * 100_000])
async def test_a_value_comes_back_as_it_was(make: Make, value: Any) -> None:
    await make().put("k", value)
    assert await make().get("k") == value


async def test_a_value_replaces_the_one_before(make: Make) -> None:
    cache = make()
    for n in range(3):
        await cache.put("k", n)
    assert await cache.get("k") == 2
    assert await cache.get("K") is None
    assert (cache.hits, cache.misses) == (1, 1)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x", {("a",): 1}])
async def test_what_is_not_json_is_refused_and_changes_nothing(make: Make, value: Any) -> None:
    cache = make()
    await cache.put("k", "old")
    for wrong in (value, [value]):
        with pytest.raises(InvalidArguments, match="must be JSON"):
            await cache.put("k", wrong)
    assert await cache.get("k") == "old"


@pytest.mark.parametrize("key", [None, 7, b"k", "\ud800", ["k"]])
async def test_a_key_is_text(make: Make, key: Any) -> None:
    cache = make()
    for call in (cache.get(key), cache.put(key, 1), cache.forget(key), cache.get_or_call(key, answers(1))):
        with pytest.raises(InvalidArguments, match="key must be whole text"):
            await call


async def test_forgetting_one_leaves_the_others(make: Make) -> None:
    cache = make()
    await cache.put("a", 1)
    await cache.put("b", 2)
    await cache.forget("a")
    assert (await cache.get("a"), await cache.get("b")) == (None, 2)
    await cache.forget("never there")


async def test_clearing_drops_all_and_gives_the_space_back(make: Make, tmp_path: Path) -> None:
    cache = make()
    for n in range(300):
        await cache.put(f"k{n}", "x" * 4000)
    await cache.clear()
    assert await cache.get("k7") is None
    assert rows(tmp_path / "answers.db", "SELECT bytes FROM total") == 0
    assert on_disk(tmp_path) < 100_000
    await cache.put("k", 1)
    assert await cache.get("k") == 1


# Time


async def test_an_answer_is_good_for_an_hour(make: Make, clock: Clock) -> None:
    cache = make()
    await cache.put("k", 1)
    clock.now += 3599.9
    assert await cache.get("k") == 1
    clock.now += 0.1
    assert await cache.get("k") is None


async def test_the_lifetime_can_be_set_for_all_and_for_one(make: Make, clock: Clock) -> None:
    cache = make(ttl=timedelta(minutes=2))
    await cache.put("all", 1)
    await cache.put("one", 1, ttl=10)
    await cache.put("long", 1, ttl=timedelta(days=1))
    clock.now += 10
    assert [await cache.get(key) for key in ("all", "one", "long")] == [1, None, 1]
    clock.now += 110
    assert [await cache.get(key) for key in ("all", "one", "long")] == [None, None, 1]


async def test_reading_does_not_prolong(make: Make, clock: Clock) -> None:
    cache = make(ttl=10)
    await cache.put("k", 1)
    for _ in range(3):
        clock.now += 3
        assert await cache.get("k") == 1
        await cache.put("other", 1)
    clock.now += 1
    assert await cache.get("k") is None


async def test_expired_rows_are_deleted_in_batches(make: Make, clock: Clock, tmp_path: Path) -> None:
    cache = make()
    for n in range(250):
        await cache.put(f"k{n}", n)
    clock.now += 3600
    assert await cache.get("k1") is None
    assert rows(tmp_path / "answers.db") == 250, "a read deletes nothing"
    await cache.put("new", 1)
    assert rows(tmp_path / "answers.db") == 51
    await cache.put("new", 1)
    assert rows(tmp_path / "answers.db") == 1


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "60"])
async def test_a_lifetime_is_a_time(make: Make, ttl: Any) -> None:
    with pytest.raises(InvalidArguments, match="ttl"):
        make(ttl=ttl)
    with pytest.raises(InvalidArguments, match="ttl"):
        await make().put("k", 1, ttl=ttl)


# Size


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def room_for(answers: int, text: int = 1000) -> int:
    return answers * (len("k0") + len(json.dumps("x" * text)) + ROW_BYTES)


async def test_what_was_not_used_for_longest_goes_first(make: Make) -> None:
    cache = make(max_bytes=room_for(3))
    for key in ("k0", "k1", "k2"):
        await cache.put(key, "x" * 1000)
    assert await cache.get("k0") is not None
    await cache.put("k3", "x" * 1000)
    await cache.put("k4", "x" * 1000)
    assert [await cache.get(f"k{n}") is not None for n in range(5)] == [True, False, False, True, True]


@pytest.mark.parametrize("batch", [2, 200])
async def test_reads_count_for_others_when_they_are_many_or_the_reader_closes(
    make: Make, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "BATCH", batch)
    writer, reader = make(max_bytes=room_for(3)), make()
    for key in ("k0", "k1", "k2"):
        await writer.put(key, "x" * 1000)
    await reader.get("k1")
    await reader.get("k0")
    if batch > 2:
        await reader.close()
    await writer.put("k3", "x" * 1000)
    assert [await writer.get(f"k{n}") is not None for n in range(4)] == [True, True, False, True]


async def test_a_replaced_answer_is_not_counted_twice(make: Make) -> None:
    cache = make(max_bytes=room_for(3))
    for n in range(20):
        await cache.put("k1", "x" * 1000)
        await cache.put(f"k{2 + n % 2}", "x" * 1000)
    assert [await cache.get(f"k{n}") is not None for n in (1, 2, 3)] == [True] * 3


async def test_one_that_is_too_large_is_not_kept_and_nor_is_the_old_one(make: Make) -> None:
    cache = make(max_bytes=room_for(3))
    await cache.put("k0", "small")
    await cache.put("k1", "small")
    await cache.put("k1", "x" * 5000)
    assert await cache.get("k1") is None
    assert await cache.get("k0") == "small"
    assert await cache.get_or_call("k2", answers("x" * 5000)) == "x" * 5000


async def test_a_large_one_may_push_out_more_than_one_batch(make: Make, tmp_path: Path) -> None:
    cache = make(max_bytes=100_000)
    for n in range(600):
        await cache.put(f"k{n}", n)
    assert rows(tmp_path / "answers.db") == 600
    await cache.put("large", "x" * 99_000)
    assert rows(tmp_path / "answers.db", "SELECT bytes FROM total") <= 100_000
    assert await cache.get("large") is not None


@pytest.mark.parametrize("size", [1, 2050, 20_000])
async def test_the_file_stays_bounded(make: Make, tmp_path: Path, size: int) -> None:
    limit = {1: 200_000, 2050: 500_000, 20_000: 1_000_000}[size]
    cache, draw, written, largest = make(max_bytes=limit), random.Random(7), 0, 0
    while written < 4 * limit:
        length = draw.randint(1, 2 * size)
        await cache.put(f"k{draw.random()}", "x" * length)
        written += length + (ROW_BYTES if size == 1 else 0)
        largest = max(largest, on_disk(tmp_path))
    assert largest <= 2 * limit
    sizes = rows(tmp_path / "answers.db", "SELECT sum(size) FROM answers")
    assert limit // 2 < sizes <= limit
    assert rows(tmp_path / "answers.db", "SELECT bytes FROM total") == sizes


async def test_space_of_expired_answers_is_given_back_bit_by_bit(make: Make, clock: Clock, tmp_path: Path) -> None:
    cache = make(max_bytes=2_000_000)
    for n in range(190):
        await cache.put(f"k{n}", "x" * 10_000)
    full = rows(tmp_path / "answers.db", "PRAGMA page_count")
    clock.now += 3600
    for _ in range(5):
        await cache.put("k", 1)
    assert rows(tmp_path / "answers.db", "PRAGMA page_count") < full / 4


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "1"])
def test_a_size_is_a_whole_number(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(InvalidArguments, match="max_bytes"):
        AnswerCache(tmp_path / "answers.db", max_bytes=wrong)


# One call for all


def answers(value: Any) -> Callable[[], Any]:
    async def call() -> Any:
        return value

    return call


class Source:
    """Answers when it is let, and counts how often it was asked."""

    def __init__(self, *outcomes: Any) -> None:
        self.asked, self.outcomes = 0, list(outcomes)
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> Any:
        self.asked += 1
        self.begun.set()
        await self.go.wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_an_answer_is_asked_for_once_and_then_cached(make: Make) -> None:
    cache, source = make(), Source({"price": 1})
    source.go.set()
    assert await cache.get_or_call("k", source) == {"price": 1}
    assert await cache.get_or_call("k", source) == {"price": 1}
    assert await make().get("k") == {"price": 1}
    assert source.asked == 1
    assert (cache.hits, cache.misses) == (1, 1)


async def test_no_answer_is_an_answer_too(make: Make) -> None:
    cache, source = make(), Source(None)
    source.go.set()
    assert [await cache.get_or_call("k", source) for _ in range(3)] == [None] * 3
    assert source.asked == 1
    assert (cache.hits, cache.misses) == (2, 1)


async def test_all_who_ask_at_the_same_time_share_one_call(make: Make) -> None:
    cache, source, other = make(), Source([1]), Source([2])
    asking = [asyncio.create_task(cache.get_or_call("k", source)) for _ in range(20)]
    another = asyncio.create_task(cache.get_or_call("other", other))
    await asyncio.wait_for(asyncio.gather(source.begun.wait(), other.begun.wait()), 10)
    source.go.set()
    got = await asyncio.gather(*asking)
    other.go.set()
    assert await another == [2]
    assert got == [[1]] * 20
    assert len({id(value) for value in got}) == 20, "whoever changes his answer changes no other's"
    assert (source.asked, other.asked, cache.hits, cache.misses) == (1, 1, 19, 2)
    assert not cache._calls


async def test_an_error_goes_to_all_who_wait_and_is_not_cached(make: Make) -> None:
    cache, source = make(), Source(ConnectionError("source is down"), "up")
    asking = [asyncio.create_task(cache.get_or_call("k", source)) for _ in range(5)]
    await asyncio.wait_for(source.begun.wait(), 10)
    source.go.set()
    errors = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in errors] == ["source is down"] * 5
    assert (source.asked, cache.hits, cache.misses) == (1, 0, 5)
    assert await cache.get("k") is None
    assert await cache.get_or_call("k", source) == "up"


async def test_if_the_caller_is_cancelled_another_one_calls(make: Make) -> None:
    cache, source = make(), Source("answer")
    asking = [asyncio.create_task(cache.get_or_call("k", source)) for _ in range(4)]
    await asyncio.wait_for(source.begun.wait(), 10)
    source.begun.clear()
    asking[0].cancel()
    await asyncio.wait_for(source.begun.wait(), 10)
    asking[2].cancel()  # one that only waits takes nobody with it
    source.go.set()
    got = await asyncio.gather(*asking, return_exceptions=True)
    assert [got[1], got[3]] == ["answer"] * 2
    assert isinstance(got[0], asyncio.CancelledError)
    assert isinstance(got[2], asyncio.CancelledError)
    assert source.asked == 2


async def test_an_error_that_nobody_else_waits_for_is_not_reported_as_lost(make: Make) -> None:
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
    source = Source(ValueError("no"))
    source.go.set()
    with pytest.raises(ValueError, match="no"):
        await make().get_or_call("k", source)
    gc.collect()
    assert lost == []


def test_a_switch_that_is_no_bool_is_refused(make: Make) -> None:
    with pytest.raises(InvalidArguments, match="must be True or False, not 'false'"):
        make(enabled="false")


@pytest.mark.parametrize("enabled", [True, False])
async def test_cached_or_not_an_answer_looks_the_same(make: Make, enabled: bool) -> None:
    cache = make(enabled=enabled)
    assert [await cache.get_or_call("k", answers((1, 2))) for _ in range(2)] == [[1, 2], [1, 2]]
    with pytest.raises(InvalidArguments, match="must be JSON"):
        await cache.get_or_call("set", answers({1}))


# Turned off


async def test_a_cache_that_is_off_keeps_nothing_and_makes_no_file(make: Make, tmp_path: Path) -> None:
    cache, source = make(enabled=False), Source(1, 2)
    source.go.set()
    await cache.put("k", 1)
    assert await cache.get("k") is None
    assert [await cache.get_or_call("k", source) for _ in range(2)] == [1, 2]
    await cache.forget("k")
    await cache.clear()
    await cache.close()
    assert (cache.hits, cache.misses) == (0, 3)
    assert os.listdir(tmp_path) == []


async def test_no_file_is_made_before_it_is_needed(make: Make, tmp_path: Path) -> None:
    cache = make(tmp_path / "new" / "folder" / "answers.db")
    assert os.listdir(tmp_path) == []
    await cache.put("k", 1)
    assert await cache.get("k") == 1
    unused = make(tmp_path / "unused.db")
    await unused.close()
    assert not (tmp_path / "unused.db").exists()


async def test_after_close_nothing_is_cached_and_nothing_fails(make: Make, tmp_path: Path) -> None:
    cache = make()
    await cache.put("k", 1)
    await cache.close()
    await cache.close()
    assert await cache.get("k") is None
    await cache.put("k", 2)
    assert not (tmp_path / "answers.db-wal").exists(), "the log is copied back and gone"
    assert await make().get("k") == 1


@pytest.mark.parametrize(
    ("env", "enabled", "ttl"),
    [
        ({}, True, 3600),
        ({"CACHE_ENABLED": "false"}, False, 3600),
        ({"CACHE_ENABLED": "No"}, False, 3600),
        ({"CACHE_ENABLED": "0"}, False, 3600),
        ({"CACHE_ENABLED": " TRUE "}, True, 3600),
        ({"CACHE_ENABLED": "yes", "CACHE_TTL_SECONDS": "60"}, True, 60),
        ({"CACHE_ENABLED": "1", "CACHE_TTL_SECONDS": "0.5"}, True, 0.5),
    ],
)
async def test_the_environment_says_whether_and_for_how_long(
    tmp_path: Path, clock: Clock, env: dict[str, str], enabled: bool, ttl: float
) -> None:
    cache = AnswerCache.from_env(tmp_path / "answers.db", env, clock=clock)
    await cache.put("k", 1)
    clock.now += ttl - 0.01
    assert await cache.get("k") == (1 if enabled else None)
    clock.now += 0.01
    assert await cache.get("k") is None
    await cache.close()


async def test_the_process_environment_is_read_if_no_other_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_ENABLED", "false")
    assert AnswerCache.from_env(tmp_path / "answers.db").enabled is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CACHE_ENABLED", "maybe"),
        ("CACHE_ENABLED", ""),
        ("CACHE_TTL_SECONDS", "0"),
        ("CACHE_TTL_SECONDS", "-5"),
        ("CACHE_TTL_SECONDS", "1h"),
        ("CACHE_TTL_SECONDS", ""),
        ("CACHE_TTL_SECONDS", "nan"),
        ("CACHE_TTL_SECONDS", "inf"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} = '{value}'"):
        AnswerCache.from_env(tmp_path / "answers.db", {name: value})


# Files in a bad state


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
    slow._file._opened = cache_module._identity(file)  # it saw the corrupt one, and then another process was quicker
    await quick.put("k", 1)
    slow._file._set_aside(sqlite3.DatabaseError("not a database"))
    assert await slow.get("k") == 1


@pytest.mark.parametrize("place", ["file/answers.db", "folder", "file/deeper/answers.db"])
async def test_a_place_where_no_file_can_be_is_as_if_it_were_off(
    make: Make, clock: Clock, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("a regular file")
    (tmp_path / "folder").mkdir()
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


async def test_a_network_filesystem_is_not_used(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "network_filesystem", lambda folder: "nfs4")
    assert await use(make()) == [None, 3]
    assert "nfs4" in warnings(caplog)[0]
    assert os.listdir(tmp_path) == []


async def test_a_text_that_the_disk_has_changed_is_a_miss(make: Make, tmp_path: Path) -> None:
    cache = make()
    await cache.put("k", {"a": 1})
    with closing(sqlite3.connect(tmp_path / "answers.db")) as other, other:
        other.execute("UPDATE answers SET value = substr(value, 2)")
    assert await cache.get("k") is None
    assert await cache.get_or_call("k", answers(2)) == 2
    assert await cache.get("k") == 2


# Many processes


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


async def test_who_holds_the_lock_for_ever_fails_nobody(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "BUSY_SECONDS", 0.05)
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
