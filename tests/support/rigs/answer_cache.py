"""Answer caches for tests: a clock that is moved by hand, a call that can be held, a look into the file."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rowlock_apps.coins.answer_cache import AnswerCache

Make = Callable[..., AnswerCache]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def rows(path: Path, query: str = "SELECT count(*) FROM answers") -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()[0]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


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
