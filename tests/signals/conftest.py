"""An open app on a migrated database of its own."""

import pytest

from support.rigs.app import app_in_real_time, app_url

__all__ = ["app_in_real_time", "app_url"]


@pytest.fixture
def engine() -> str:
    """What is told of a job is the worker's: one engine is enough. A test of what is stored for it names both."""
    return "sqlite"
