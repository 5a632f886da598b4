"""An open app on a migrated database of its own, on each engine; the bodies never name an engine."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from support.rigs.app import app_in_real_time, app_url

__all__ = ["app_in_real_time", "app_url"]


@pytest.fixture
def handlers() -> Iterator[dict[int, Any]]:
    """Every stop signal with a handler of this test's: should nobody else catch it, the test lives to tell."""

    def missed(number: int, _: Any) -> None:
        raise AssertionError(f"signal {number} was not caught")

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.signal(number, missed) for number in numbers}
    yield dict.fromkeys(numbers, missed)
    for number, handler in before.items():
        signal.signal(number, handler)
