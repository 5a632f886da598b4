"""The pytest plugin: fixtures that give a test its own database and clock. Rowlock is imported on their first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from rowlock.core.times import FakeClock


@pytest.fixture
def rowlock_clock() -> FakeClock:
    """A fake clock that only moves when the test calls `move`."""
    from rowlock.core.times import FakeClock

    return FakeClock()


@pytest.fixture
def rowlock_database(tmp_path: Path) -> str:
    """The URL of a SQLite database that belongs to this test."""
    return f"sqlite:///{tmp_path / 'rowlock.db'}"


@pytest.fixture
def rowlock_testing(rowlock_database: str) -> Callable[..., Any]:
    """`async with rowlock_testing(app) as t:` is `rowlock.testing.testing(app)` on this test's own database."""
    from rowlock.testing import testing

    def start(app: Any, **options: Any) -> Any:
        return testing(app, **({"database": rowlock_database} | options))

    return start
