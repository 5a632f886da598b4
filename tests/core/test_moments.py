"""Moments as people type them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rowlock.core.errors import InvalidArguments
from rowlock.core.times import FIRST_MOMENT, LAST_MOMENT, parse_moment, parse_moment_or_ago
from support.each import each

NINE = datetime(2026, 3, 1, 9, tzinfo=timezone(timedelta(hours=1)))


@each(
    "text",
    ["2026-03-01T09:00:00+01:00", " 2026-03-01 09:00+01:00 ", "2026-03-01T09:00:00 01:00", "2026-03-01T08:00Z"],
)
def test_an_iso_time_is_read_in_each_spelling(text: str) -> None:
    assert parse_moment(text) == NINE
    assert parse_moment_or_ago(text) == NINE


def test_a_duration_is_a_moment_before_now() -> None:
    assert abs(datetime.now(UTC) - timedelta(hours=2) - parse_moment_or_ago("2h")) < timedelta(minutes=1)


def test_a_moment_beyond_all_jobs_is_moved_to_the_edge() -> None:
    assert parse_moment_or_ago("99999999999d") == FIRST_MOMENT
    assert parse_moment_or_ago("0001-01-01T00:00+14:00") == FIRST_MOMENT
    assert parse_moment_or_ago("9999-12-31T23:59-12:00") == LAST_MOMENT


@each(
    "text, problem",
    [
        ("yesterday", "'yesterday': expected a time ago such as 2h"),
        ("", "expected a time ago"),
        ("2026-03-01T09:00", "has no time zone: write 2026-03-01T09:00Z"),
        ("2026-13-01T09:00Z", "expected a time ago"),
    ],
)
def test_what_is_not_a_moment_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidArguments, match=problem):
        parse_moment_or_ago(text)
