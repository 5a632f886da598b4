"""The cache of answers: one call for all who ask at the same time, and a cache that is turned off."""

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from rowlock.core.errors import ConfigError, InvalidArguments
from rowlock_apps.coins.answer_cache import AnswerCache
from support.each import each
from support.rigs.answer_cache import Clock, Make, Source, answers


async def test_an_answer_is_asked_for_once_and_then_cached(make: Make) -> None:
    cache, source = make(), Source({"price": 1})
    source.go.set()
    assert await cache.get_or_call("k", source) == {"price": 1}
    assert await cache.get_or_call("k", source) == {"price": 1}
    assert await make().get("k") == {"price": 1}
    assert source.asked == 1
    assert (cache.hits, cache.misses) == (1, 1)


async def test_a_none_answer_is_cached(make: Make) -> None:
    cache, source = make(), Source(None)
    source.go.set()
    assert [await cache.get_or_call("k", source) for _ in range(3)] == [None] * 3
    assert source.asked == 1
    assert (cache.hits, cache.misses) == (2, 1)


async def test_callers_that_ask_for_one_key_at_the_same_time_share_one_call(make: Make) -> None:
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


def test_enabled_must_be_a_bool(make: Make) -> None:
    with pytest.raises(InvalidArguments, match="must be True or False, not 'false'"):
        make(enabled="false")


@each("enabled", [True, False])
async def test_cached_or_not_an_answer_looks_the_same(make: Make, enabled: bool) -> None:
    cache = make(enabled=enabled)
    assert [await cache.get_or_call("k", answers((1, 2))) for _ in range(2)] == [[1, 2], [1, 2]]
    with pytest.raises(InvalidArguments, match="must be JSON"):
        await cache.get_or_call("set", answers({1}))


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


@each(
    "env, enabled, ttl",
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
async def test_the_environment_turns_the_cache_on_or_off_and_sets_its_lifetime(
    tmp_path: Path, clock: Clock, env: dict[str, str], enabled: bool, ttl: float
) -> None:
    cache = AnswerCache.from_env(tmp_path / "answers.db", env, clock=clock)
    await cache.put("k", 1)
    start = clock.now
    clock.now = start + ttl - 0.01
    assert await cache.get("k") == (1 if enabled else None)
    clock.now = start + ttl
    assert await cache.get("k") is None
    await cache.close()


async def test_the_process_environment_is_read_if_no_other_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_ENABLED", "false")
    assert AnswerCache.from_env(tmp_path / "answers.db").enabled is False


@each(
    "name, value",
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
