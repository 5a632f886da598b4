"""Who hears of a worker's jobs: each listener, whatever another one does with the news."""

from collections.abc import Sequence

import pytest

from rowlock.core.job import Claimed
from rowlock.signals.events import Watcher, Watchers
from rowlock.signals.metrics import BOUNDS, SecondsHistogram
from support.each import each


class Hears(Watcher):
    """Counts the successes that it hears of; raises first, if it is broken."""

    def __init__(self, broken: bool = False) -> None:
        self.broken, self.heard = broken, 0

    def succeeded(self, done: Sequence[tuple[Claimed, float]]) -> None:
        if self.broken:
            raise ZeroDivisionError("in a listener")
        self.heard += len(done)


@each("count", [1, 2])
def test_a_listener_that_raises_keeps_no_other_from_hearing_and_stops_no_worker(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    whole = Hears()
    watchers = Watchers(Hears(broken=True), *[whole][: count - 1])
    watchers.succeeded([(Claimed(id="1", task="t"), 0.1)] * 3)
    assert whole.heard == 3 * (count - 1)
    assert "a listener failed" in caplog.text


def test_a_histogram_of_many_values_is_the_histogram_of_each() -> None:
    values = [0.0, *BOUNDS, *(bound * 1.01 for bound in BOUNDS), 0.003, 10_000.0] * 3
    at_once, one_by_one = SecondsHistogram(), SecondsHistogram()
    for value in values:
        one_by_one.observe(value)
    at_once.observe_all(values[:7])
    at_once.observe_all(values[7:])
    at_once.observe_all([])
    assert at_once.counts == one_by_one.counts
    assert at_once.sum == pytest.approx(one_by_one.sum)
