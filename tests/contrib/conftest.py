"""Answer caches on a file of the test's own, with a clock that is moved by hand."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.contrib.answer_cache import AnswerCache
from support.answer_cache import Clock, Make


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
