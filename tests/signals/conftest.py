"""An open app on a migrated database of its own."""

import pytest

from support.rigs.app import app_in_real_time, app_url

__all__ = ["app_in_real_time", "app_url"]


@pytest.fixture
def engine() -> str:
    """Logs, traces and metrics come from the worker: one engine is enough. A test of what is stored names both."""
    return "sqlite"
