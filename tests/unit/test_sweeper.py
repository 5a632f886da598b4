"""The sweeper's own outage guard: no lease is ended before this process has been in touch for a whole one."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.core.config import WorkerSettings
from rowlock.store.jobs import Keep
from rowlock.work import sweeper


class Times:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.boot, self.wall = 1000.0, 5_000_000.0

    def move(self, seconds: float) -> None:
        self.boot += seconds
        self.wall += seconds


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    clocks = Times()
    monkeypatch.setattr(sweeper, "boottime", lambda: clocks.boot)
    monkeypatch.setattr(sweeper, "time", SimpleNamespace(time=lambda: clocks.wall))
    return clocks


def made(heart: Any) -> sweeper.Sweeper:
    return sweeper.Sweeper(None, WorkerSettings(), Keep(), heart, lambda _: None)  # type: ignore[arg-type]


def test_a_new_worker_waits_for_one_lease(times: Times) -> None:
    sweeping = made(SimpleNamespace(in_touch_since=times.boot))
    times.move(59)
    assert not sweeping._may_reclaim()
    times.move(1)
    assert sweeping._may_reclaim()


def test_after_a_failed_beat_it_waits_for_one_lease_of_good_ones(times: Times) -> None:
    heart = SimpleNamespace(in_touch_since=times.boot)
    sweeping = made(heart)
    times.move(100)
    assert sweeping._may_reclaim()
    heart.in_touch_since = math.inf  # as the heart says while beats fail
    assert not sweeping._may_reclaim()
    heart.in_touch_since = times.boot
    times.move(59)
    assert not sweeping._may_reclaim()
    times.move(1)
    assert sweeping._may_reclaim()


def test_a_jump_of_the_wall_clock_counts_as_an_outage(times: Times) -> None:
    sweeping = made(SimpleNamespace(in_touch_since=times.boot))
    times.move(100)
    assert sweeping._may_reclaim()
    times.wall += 31
    assert not sweeping._may_reclaim()
    times.move(60)
    assert sweeping._may_reclaim()
