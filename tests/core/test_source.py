"""Sources without a database: names, rates and limits as people write them, the bucket, the breaker."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.core.errors import InvalidArguments
from rowlock.core.source import (
    UNLIMITED,
    Event,
    Gate,
    Health,
    admit,
    after,
    check_name,
    check_policy,
    class_of,
    parse_rate,
    show_rate,
)

OPEN = Gate(
    concurrency=None,
    total=None,
    rate=None,
    burst=None,
    enabled=True,
    paused_for=None,
    opened=False,
    probing=False,
    tokens=None,
    elapsed=None,
    epoch=0,
    running=0,
    class_running=0,
    has_row=True,
    has_class=True,
)
FAILURE, SUCCESS, REFUSAL, NOTHING = (Event(kind, 0) for kind in ("failure", "success", "refusal", "none"))  # type: ignore[arg-type]


def all_after(health: Health, *events: Event) -> Health:
    """Each event by an attempt that was claimed just before."""
    for event in events:
        health = after(health, event._replace(epoch=health.epoch))
    return health


# What people write


@pytest.mark.parametrize(
    ("text", "per_minute"),
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


@pytest.mark.parametrize(
    "bad", ["30", "", "/min", "min", "30/fortnight", "-30/min", "0/min", "nan/min", "1e3/s", "3/min x"]
)
def test_a_rate_without_a_unit_or_above_nothing_is_an_error_that_shows_it(bad: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_rate(bad)
    assert repr(bad) in str(caught.value)


def test_the_class_is_what_stands_before_the_first_colon() -> None:
    assert [class_of(name) for name in ("api:ebay", "domain:example.com:8080", "api")] == ["api", "domain", "api"]


@pytest.mark.parametrize("bad", ["", ":ebay", " api", "api:\n", "api:e\x00", "x" * 201, None, 3])
def test_a_name_that_cannot_be_is_an_error_that_says_what_one_looks_like(bad: Any) -> None:
    with pytest.raises(InvalidArguments, match="api:ebay"):
        check_name(bad)


def test_settings_are_stored_as_numbers_and_none_takes_one_back() -> None:
    asked = {"concurrency": 0, "rate": "2/s", "burst": 5, "threshold": 3, "cooldown": 60, "factor": 2, "block_after": 1}
    assert check_policy("api:ebay", asked) == asked | {"rate": 120.0}
    assert check_policy("api", {"total": 7, "concurrency": None}) == {"total": 7, "concurrency": None}


@pytest.mark.parametrize(
    ("key", "bad"),
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


# The gate


@pytest.mark.parametrize(("limit", "running", "room"), [(2, 0, 2), (2, 1, 1), (2, 2, 0), (1, 4, 0), (0, 0, 0)])
def test_a_source_lets_in_what_its_limit_leaves(limit: int, running: int, room: int) -> None:
    assert admit(OPEN._replace(concurrency=limit, running=running)).room == room
    of_class = admit(OPEN._replace(total=limit, class_running=running))
    assert min(of_class.room, of_class.class_room) == room


@pytest.mark.parametrize(
    ("why", "gate"),
    [
        ("disabled", OPEN._replace(enabled=False)),
        ("paused", OPEN._replace(paused_for=0.5)),
        ("breaker", OPEN._replace(opened=True, paused_for=0.5)),
        ("probe", OPEN._replace(opened=True, probing=True)),
        ("saturated", OPEN._replace(concurrency=1, running=1)),
        ("class", OPEN._replace(total=1, class_running=1)),
        ("rate", OPEN._replace(rate=60.0, tokens=0.5, elapsed=0.25)),
    ],
)
def test_a_closed_source_says_why(why: str, gate: Gate) -> None:
    admission = admit(gate)
    assert (admission.room, admission.why) == (0, why)
    assert admission.wait == {"paused": 0.5, "breaker": 0.5, "rate": 0.25}.get(why)


def test_a_half_open_source_lets_in_one_however_much_room_it_has() -> None:
    assert admit(OPEN._replace(opened=True, paused_for=-1.0, concurrency=50)) == (1, None, None, True, UNLIMITED)


RATES = st.sampled_from([0.5, 7.0, 30.0, 60.0, 1000.0, 90_000.0])
STEPS = st.lists(
    st.tuples(st.floats(-5, 200) | st.sampled_from([0.0, 1e-6, 1.0, 60.0]), st.integers(1, 12)), max_size=40
)


@settings(deadline=None)  # a busy machine is not a failure
@given(rate=RATES, burst=st.integers(1, 20), steps=STEPS)
def test_no_window_sees_more_than_its_burst_and_what_the_rate_brings(
    rate: float, burst: int, steps: list[tuple[float, int]]
) -> None:
    now = filled_at = 0.0
    tokens: float | None = None
    taken: list[float] = []
    for moved, wanted in steps:
        now += moved
        gate = OPEN._replace(rate=rate, burst=burst, tokens=tokens, elapsed=now - filled_at)
        count = min(wanted, admit(gate).room)
        if count:
            assert gate.level is not None
            tokens, filled_at = gate.level - count, max(filled_at, now)
            taken += [now] * count
    for start in taken:
        for end in taken:
            inside = sum(start <= at <= end for at in taken)
            assert inside <= burst + rate / 60 * max(0.0, end - start) + 1e-6


@settings(deadline=None)  # a busy machine is not a failure
@given(rate=RATES, burst=st.integers(1, 20), tokens=st.floats(0, 0.999))
def test_the_next_token_comes_when_it_was_promised_and_not_before(rate: float, burst: int, tokens: float) -> None:
    gate = OPEN._replace(rate=rate, burst=burst, tokens=tokens, elapsed=0.0)
    wait = admit(gate).wait
    assert wait is not None
    assert admit(gate._replace(elapsed=wait)).room == 1
    assert admit(gate._replace(elapsed=wait * 0.99)).room == 0


# The breaker


def test_five_failures_in_a_row_open_it_for_five_minutes() -> None:
    four = all_after(Health(), *[FAILURE] * 4)
    assert (four.opened, four.streak, four.paused_for) == (False, 4, None)
    five = all_after(four, FAILURE)
    assert (five.opened, five.streak, five.paused_for) == (True, 5, 300.0)


def test_a_success_in_between_starts_the_count_anew_and_what_is_nobodys_fault_does_not_count() -> None:
    assert not all_after(Health(), *[FAILURE] * 4, SUCCESS, *[FAILURE] * 4).opened
    assert not all_after(Health(), *[FAILURE] * 4, *[NOTHING] * 9).opened


def test_outcomes_of_jobs_claimed_before_the_breaker_changed_are_ignored() -> None:
    opened = all_after(Health(), *[FAILURE] * 5)
    for late in (FAILURE, SUCCESS, REFUSAL, NOTHING):
        assert after(opened, late) == opened


def test_a_successful_probe_closes_the_breaker_and_a_failed_one_opens_it_for_longer_with_a_factor() -> None:
    health = replace(all_after(Health(factor=2.0), *[FAILURE] * 5), paused_for=-1.0)
    closed = all_after(health, SUCCESS)
    assert (closed.opened, closed.streak, closed.paused_for) == (False, 0, None)
    lengths = []
    for _ in range(12):
        health = all_after(replace(health, paused_for=-1.0), FAILURE)
        lengths.append(health.paused_for)
    assert lengths[:3] == [600.0, 1200.0, 2400.0]
    assert lengths[-1] == lengths[-2] == 86_400.0, "a day at most"
    assert all_after(closed, *[FAILURE] * 5).paused_for == 300.0, "a success ends the growth too"


def test_the_source_is_left_alone_for_as_long_as_it_asks_but_never_for_less_than_before() -> None:
    asked = after(Health(), FAILURE._replace(retry_after=60.0))
    assert (asked.paused_for, asked.opened) == (60.0, False)
    assert after(asked, FAILURE._replace(retry_after=5.0)).paused_for == 60.0
    fifth = all_after(asked, *[FAILURE] * 3, FAILURE._replace(retry_after=1000.0))
    assert (fifth.opened, fifth.paused_for) == (True, 1000.0)
    late = after(fifth, Event("failure", 0, retry_after=5000.0))
    assert late == replace(fifth, paused_for=5000.0), "also when an attempt from before says so"


def test_refusals_in_a_row_disable_only_where_that_is_set() -> None:
    assert all_after(Health(), *[REFUSAL] * 50) == Health(refusals=50)
    assert all_after(Health(block_after=3), *[REFUSAL] * 2).enabled
    assert not all_after(Health(block_after=3), *[REFUSAL] * 3).enabled
    assert all_after(Health(block_after=3), *[REFUSAL] * 2, SUCCESS, *[REFUSAL] * 2).enabled
