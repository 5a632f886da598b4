"""The cache of answers: keys, values, how long an answer is good, and how large the file may grow."""

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rowlock.core.errors import InvalidArguments
from rowlock_apps.coins import answer_file as cache_file
from rowlock_apps.coins.answer_cache import AnswerCache
from rowlock_apps.coins.answer_file import ROW_BYTES
from support.each import each
from support.rigs.answer_cache import Clock, Make, answers, rows


def test_a_key_is_its_parts_in_order() -> None:
    parts = {"source_id": "ebay", "year": 1921, "mintmark": "D", "denomination": "1", "series": "Morgan"}
    assert AnswerCache.key(**parts, title="MS 63") == "ebay|1921|D|1|Morgan|MS 63"
    assert AnswerCache.key(**parts | {"mintmark": None}, title="") == "ebay|1921||1|Morgan|"


def test_different_parts_never_make_the_same_key() -> None:
    texts = ["", "a", "|", "\\", "\\|", "a|", "|a", "a\\", "\\\\", "||"]
    keys = [AnswerCache.key(x=x, y=y, z=z) for x in texts for y in texts for z in texts]
    assert len(set(keys)) == len(texts) ** 3


@each("value", [0, False, "", [], {"a": [1, 2.5, None, "ü\ud800|"]}, "x" * 100_000])
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


@each("value", [object(), {1, 2}, float("nan"), b"x", {("a",): 1}])
async def test_what_is_not_json_is_refused_and_changes_nothing(make: Make, value: Any) -> None:
    cache = make()
    await cache.put("k", "old")
    for wrong in (value, [value]):
        with pytest.raises(InvalidArguments, match="must be JSON"):
            await cache.put("k", wrong)
    assert await cache.get("k") == "old"


@each("key", [None, 7, b"k", "\ud800", ["k"]])
async def test_a_cache_key_that_is_not_text_is_refused(make: Make, key: Any) -> None:
    cache = make()
    for call in (cache.get(key), cache.put(key, 1), cache.forget(key), cache.get_or_call(key, answers(1))):
        with pytest.raises(InvalidArguments, match="key must be valid text"):
            await call


async def test_forgetting_one_cached_answer_keeps_the_other_answers(make: Make) -> None:
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


async def test_reading_a_cached_answer_does_not_prolong_its_time(make: Make, clock: Clock) -> None:
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


@each("ttl", [0, -1, float("nan"), float("inf"), True, "60"])
async def test_a_lifetime_that_is_not_a_positive_time_is_refused(make: Make, ttl: Any) -> None:
    with pytest.raises(InvalidArguments, match="ttl"):
        make(ttl=ttl)
    with pytest.raises(InvalidArguments, match="ttl"):
        await make().put("k", 1, ttl=ttl)


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def room_for(answers: int, text: int = 1000) -> int:
    return answers * (len("k0") + len(json.dumps("x" * text)) + ROW_BYTES)


async def test_a_full_cache_drops_the_least_recently_used_answer(make: Make) -> None:
    cache = make(max_bytes=room_for(3))
    for key in ("k0", "k1", "k2"):
        await cache.put(key, "x" * 1000)
    assert await cache.get("k0") is not None
    await cache.put("k3", "x" * 1000)
    await cache.put("k4", "x" * 1000)
    assert [await cache.get(f"k{n}") is not None for n in range(5)] == [True, False, False, True, True]


@each("batch", [2, 200])
async def test_reads_count_for_others_when_they_are_many_or_the_reader_closes(
    make: Make, tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "BATCH", batch)
    file = tmp_path / f"{batch}.db"
    writer, reader = make(file, max_bytes=room_for(3)), make(file)
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


async def test_an_answer_that_is_too_large_is_not_cached_and_removes_the_older_answer(make: Make) -> None:
    cache = make(max_bytes=room_for(3))
    await cache.put("k0", "small")
    await cache.put("k1", "small")
    await cache.put("k1", "x" * 5000)
    assert await cache.get("k1") is None
    assert await cache.get("k0") == "small"
    assert await cache.get_or_call("k2", answers("x" * 5000)) == "x" * 5000


async def test_a_large_answer_may_push_out_more_than_one_batch_of_others(make: Make, tmp_path: Path) -> None:
    cache = make(max_bytes=100_000)
    for n in range(600):
        await cache.put(f"k{n}", n)
    assert rows(tmp_path / "answers.db") == 600
    await cache.put("large", "x" * 99_000)
    assert rows(tmp_path / "answers.db", "SELECT bytes FROM total") <= 100_000
    assert await cache.get("large") is not None


@each("size, limit", [(1, 200_000), (2050, 500_000), (20_000, 1_000_000)])
async def test_the_file_of_the_answer_cache_stays_below_its_limit(
    make: Make, tmp_path: Path, size: int, limit: int
) -> None:
    file = tmp_path / str(size) / "answers.db"
    cache, draw, written, largest = make(file, max_bytes=limit), random.Random(7), 0, 0
    while written < 4 * limit:
        length = draw.randint(1, 2 * size)
        await cache.put(f"k{draw.random()}", "x" * length)
        written += length + (ROW_BYTES if size == 1 else 0)
        largest = max(largest, on_disk(file.parent))
    assert largest <= 2 * limit
    sizes = rows(file, "SELECT sum(size) FROM answers")
    assert limit // 2 < sizes <= limit
    assert rows(file, "SELECT bytes FROM total") == sizes


async def test_space_of_expired_answers_is_given_back_bit_by_bit(make: Make, clock: Clock, tmp_path: Path) -> None:
    cache = make(max_bytes=2_000_000)
    for n in range(190):
        await cache.put(f"k{n}", "x" * 10_000)
    full = rows(tmp_path / "answers.db", "PRAGMA page_count")
    clock.now += 3600
    for _ in range(5):
        await cache.put("k", 1)
    assert rows(tmp_path / "answers.db", "PRAGMA page_count") < full / 4


@each("wrong", [0, -1, 1.5, "1"])
def test_a_size_limit_that_is_not_a_positive_whole_number_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(InvalidArguments, match="max_bytes"):
        AnswerCache(tmp_path / "answers.db", max_bytes=wrong)
