"""The demo checks itself; so its checks are checked."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rowlock_apps.cronjobs.demo_checks import EXPECTED, mistakes, summary
from rowlock_apps.cronjobs.executions import Execution, Status
from support.each import each

START = datetime(2026, 1, 1, tzinfo=UTC)
TICKS = {
    "heartbeat": [0, 1, 4, 5],  # paused in between
    "added-later": [1, 2, 3, 4],
    "flaky": [2, 4],
    "broken": [2, 4],
    "too-slow": [2, 4],
    "one-at-a-time": [0, 3, 6],
}


def execution(name: str, second: int, seconds: float = 0.5) -> Execution:
    status, retries = EXPECTED[name]
    tick = START + timedelta(seconds=second)
    end = tick + timedelta(seconds=seconds)
    return Execution(
        id=f"{name} {second}",
        job_id=name,
        status=Status(status),
        retry_count=retries,
        max_retry=3,
        created_at=tick,
        scheduled_time=tick,
        started_at=tick,
        finished_at=end,
        worker="w",
        handler_name="sample",
        handler_params={},
        timeout_seconds=None,
        result=None,
        error_message=None,
    )


def show() -> list[Execution]:
    return [execution(name, second) for name, ticks in TICKS.items() for second in ticks]


def test_a_good_show_has_no_mistakes() -> None:
    assert mistakes(show()) == []
    assert "17 ticks were fired by two dispatchers and made 17 executions" in summary(show())


WRONG_SHOWS = [
    ([e for e in show() if e.job_id != "flaky"], "flaky was never fired"),
    ([*show(), execution("broken", 2)], "broken was fired 2 times at 00:00:02"),
    ([e if e.job_id != "flaky" else replace(e, retry_count=1) for e in show()], "SUCCESS after 1 retries"),
    ([e if e.id != "too-slow 2" else replace(e, status=Status.FAILED) for e in show()], "too-slow at .* is FAILED"),
    ([e if e.id != "broken 4" else replace(e, status=Status.PENDING) for e in show()], "broken at .* is PENDING"),
    ([*show(), execution("heartbeat", 2), execution("heartbeat", 3)], "the ticks of heartbeat have 0 gaps, not 1"),
    ([e for e in show() if e.id != "added-later 2"], "the ticks of added-later have 1 gaps, not 0"),
    ([*show(), execution("one-at-a-time", 8), execution("one-at-a-time", 9)], "no tick was passed over"),
    ([*show(), execution("one-at-a-time", 8, 5), execution("one-at-a-time", 10)], "ran twice at once"),
]


@each("changed, mistake", WRONG_SHOWS, ids=[mistake for _, mistake in WRONG_SHOWS])
def test_the_demo_reports_an_execution_that_ended_wrongly(changed: list[Execution], mistake: str) -> None:
    assert [found for found in mistakes(changed) if re.search(mistake, found)]
