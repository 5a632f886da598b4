"""The circuit breaker of a source, without a database."""

from dataclasses import replace

from rowlock.core.sources.breaker import BreakerEvent, Health, after

FAILURE, SUCCESS, REFUSAL, NOTHING = (BreakerEvent(kind, 0) for kind in ("failure", "success", "refusal", "none"))  # type: ignore[arg-type]


def all_after(health: Health, *events: BreakerEvent) -> Health:
    """Each event by an attempt that was claimed just before."""
    for event in events:
        health = after(health, event._replace(epoch=health.epoch))
    return health


def test_five_failures_in_a_row_open_it_for_five_minutes() -> None:
    four = all_after(Health(), *[FAILURE] * 4)
    assert (four.opened, four.streak, four.paused_for) == (False, 4, None)
    five = all_after(four, FAILURE)
    assert (five.opened, five.streak, five.paused_for) == (True, 5, 300.0)


def test_only_failures_without_a_success_in_between_open_the_breaker() -> None:
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


def test_a_retry_after_lengthens_the_pause_of_a_source_and_never_shortens_it() -> None:
    asked = after(Health(), FAILURE._replace(retry_after=60.0))
    assert (asked.paused_for, asked.opened) == (60.0, False)
    assert after(asked, FAILURE._replace(retry_after=5.0)).paused_for == 60.0
    fifth = all_after(asked, *[FAILURE] * 3, FAILURE._replace(retry_after=1000.0))
    assert (fifth.opened, fifth.paused_for) == (True, 1000.0)
    late = after(fifth, BreakerEvent("failure", 0, retry_after=5000.0))
    assert late == replace(fifth, paused_for=5000.0), "also when an attempt from before says so"


def test_refusals_in_a_row_disable_only_where_that_is_set() -> None:
    assert all_after(Health(), *[REFUSAL] * 50) == Health(refusals=50)
    assert all_after(Health(block_after=3), *[REFUSAL] * 2).enabled
    assert not all_after(Health(block_after=3), *[REFUSAL] * 3).enabled
    assert all_after(Health(block_after=3), *[REFUSAL] * 2, SUCCESS, *[REFUSAL] * 2).enabled
