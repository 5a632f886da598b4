"""The pytest plugin: fixtures for a test's own database and clock. Nothing is imported until a fixture is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from rowlock.core.clock import FakeClock


@pytest.fixture
def rowlock_clock() -> FakeClock:
    """A clock that moves only when told to."""
    from rowlock.core.clock import FakeClock

    return FakeClock()


@pytest.fixture
def rowlock_database(tmp_path: Path) -> str:
    """The URL of a SQLite database that belongs to this test."""
    return f"sqlite:///{tmp_path / 'rowlock.db'}"


@pytest.fixture
def rowlock_testing(rowlock_database: str) -> Callable[..., Any]:
    """`async with rowlock_testing(app) as t:` — rowlock.testing on this test's database."""
    from rowlock.testing import testing

    def start(app: Any, **options: Any) -> Any:
        return testing(app, **({"database": rowlock_database} | options))

    return start
