"""The settings of sources as people write them: names, rates and limits."""

import math
from typing import Any

import pytest

from rowlock.core.errors import InvalidArguments
from rowlock.core.sources.admission import class_of
from rowlock.core.sources.policy import check_name, check_policy, parse_rate, show_rate
from support.each import each


@each(
    "text, per_minute",
    [
        ("30/min", 30),
        ("30 / minute", 30),
        ("2/s", 120),
        ("0.5/sec", 30),
        (" 1/second ", 60),
        ("500/hour", 500 / 60),
        ("60/H", 1),
    ],
)
def test_a_rate_is_a_number_and_a_unit(text: str, per_minute: float) -> None:
    assert parse_rate(text) == pytest.approx(per_minute)
    assert parse_rate(show_rate(per_minute)) == pytest.approx(per_minute, rel=1e-4)


@each("bad", ["30", "", "/min", "min", "30/fortnight", "-30/min", "0/min", "nan/min", "1e3/s", "3/min x"])
def test_a_rate_that_is_not_a_positive_number_and_a_unit_is_refused_with_its_text(bad: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_rate(bad)
    assert repr(bad) in str(caught.value)


def test_the_class_is_what_stands_before_the_first_colon() -> None:
    assert [class_of(name) for name in ("api:ebay", "domain:example.com:8080", "api")] == ["api", "domain", "api"]


@each("bad", ["", ":ebay", " api", "api:\n", "api:e\x00", "x" * 201, None, 3])
def test_an_impossible_source_name_is_refused_with_an_example_of_a_good_one(bad: Any) -> None:
    with pytest.raises(InvalidArguments, match="api:ebay"):
        check_name(bad)


def test_settings_of_a_source_are_stored_as_numbers_and_none_removes_a_limit() -> None:
    asked = {"concurrency": 0, "rate": "2/s", "burst": 5, "threshold": 3, "cooldown": 60, "factor": 2, "block_after": 1}
    assert check_policy("api:ebay", asked) == asked | {"rate": 120.0}
    assert check_policy("api", {"total": 7, "concurrency": None}) == {"total": 7, "concurrency": None}


@each(
    "key, bad",
    [
        *(("concurrency", bad) for bad in (-1, 1.5, "4", True, 2**31)),
        *(("rate", bad) for bad in ("30", 30, -1, "-1/min", True)),
        *(("burst", bad) for bad in (0, -5, 2.5, "5")),
        *(("threshold", bad) for bad in (0, -1)),
        *(("cooldown", bad) for bad in (0, -300, math.inf, math.nan, "5m", True)),
        *(("factor", bad) for bad in (0.5, -1, math.nan)),
        *(("block_after", bad) for bad in (0, -3)),
        ("colour", "blue"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(key: str, bad: object) -> None:
    with pytest.raises(InvalidArguments) as caught:
        check_policy("api:ebay", {"burst": 5, key: bad})
    assert key in str(caught.value) or repr(bad) in str(caught.value)


def test_a_negative_total_and_a_total_of_one_source_are_errors() -> None:
    with pytest.raises(InvalidArguments, match="total"):
        check_policy("api", {"total": -1})
    with pytest.raises(InvalidArguments, match="'api'"):
        check_policy("api:ebay", {"total": 5})


def test_an_unknown_setting_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InvalidArguments, match=r"concurrency.*rate.*burst"):
        check_policy("api:ebay", {"limit": 5})
