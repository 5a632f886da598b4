"""`decide` by the contract's numbers: tries, backoff, jitter, losses, poison, cancelling."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.core.errors import InvalidArguments, NotAllowed
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import DEFAULT_BACKOFF, Backoff, Transition, decide, exponential, fixed, tries_used
from rowlock.core.states import FINAL, TRANSITIONS, Outcome, State, allowed
from support.each import each

DRAWS = [0.0, 0.25, 0.5, 0.999999]


@dataclass(frozen=True)
class Job:
    """What decide wants to know, and nothing else."""

    attempt: int = 1
    max_attempts: int = 5
    releases: int = 0
    losses: int = 0
    convictions: int = 0
    losses_in_row: int = 0
    probation: int = 0
    sigterms_in_row: int = 0
    disconnects_in_row: int = 0
    backoff: str | None = None
    on_lost: str | None = None
    cancel_requested: bool = False


def fails(job: Job, draw: float = 0.5, **how: float | bool | None) -> tuple[State, float]:
    transition = decide(job, Failed("E", "no", **how), draw)  # type: ignore[arg-type]
    return transition.state, transition.delay


# Tries


@each("end", [Failed("E", "no"), TimedOut(3)])
def test_a_job_is_tried_max_attempts_times(end: AttemptEnd) -> None:
    states = [decide(Job(attempt=n, max_attempts=3), end, 0.5).state for n in (1, 2, 3, 4)]
    assert states == [State.RETRYABLE, State.RETRYABLE, State.DEAD, State.DEAD]


def test_releases_and_losses_do_not_count_as_tries() -> None:
    job = Job(attempt=9, max_attempts=3, releases=4, losses=3)
    assert tries_used(job) == 2
    assert fails(job)[0] is State.RETRYABLE
    assert fails(replace(job, attempt=10))[0] is State.DEAD


def test_the_only_try_is_the_last() -> None:
    assert fails(Job(max_attempts=1))[0] is State.DEAD


def test_a_permanent_failure_is_dead_with_tries_left() -> None:
    transition = decide(Job(max_attempts=100), Failed("HTTP_403", "forbidden", permanent=True), 0.5)
    assert transition.state is State.DEAD
    assert (transition.outcome, transition.error_code, transition.error_message) == ("failed", "HTTP_403", "forbidden")


def test_backoff_counts_tries_and_not_attempts() -> None:
    plain = fails(Job(attempt=2))[1]
    assert fails(Job(attempt=9, releases=4, losses=3))[1] == plain


# Backoff


def test_the_default_is_exponential_from_10_seconds_to_a_day() -> None:
    assert (DEFAULT_BACKOFF.kind, DEFAULT_BACKOFF.base, DEFAULT_BACKOFF.cap) == ("exponential", 10, 86_400)
    top = [DEFAULT_BACKOFF.delay(tries, 1.0) for tries in range(1, 16)]
    assert top == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 81920, 86400]


@each("tries", range(1, 30))
def test_exponential_jitter_covers_the_upper_half(tries: int) -> None:
    full = min(86_400, 10 * 2 ** (tries - 1))
    assert exponential().delay(tries, 0.0) == full / 2
    assert all(full / 2 <= exponential().delay(tries, draw) <= full for draw in DRAWS)
    assert exponential().delay(tries, 0.999999) > full * 0.99


@each("tries", [21, 60, 1000, 10**9])
def test_a_high_attempt_does_not_overflow(tries: int) -> None:
    assert exponential().delay(tries, 0.999999) <= 86_400
    assert exponential(base=1e-3, factor=100).delay(tries, 0.5) <= 86_400
    assert fails(Job(attempt=tries, max_attempts=tries + 1))[1] <= 86_400


@each("draw", DRAWS)
@each("tries", [1, 2, 60])
def test_a_fixed_delay_is_never_shorter_than_it_says(tries: int, draw: float) -> None:
    assert 300 <= fixed(minutes=5).delay(tries, draw) <= 360


def test_a_fixed_delay_is_spread_over_a_fifth_of_itself() -> None:
    assert fixed(minutes=5).delay(1, 0.0) == 300
    assert fixed(minutes=5).delay(1, 0.5) == 330
    assert fixed(minutes=5).delay(1, 0.999999) > 359


def test_delays_can_be_said_in_several_ways() -> None:
    same = [fixed(5400), fixed(seconds=5400), fixed(minutes=90), fixed(hours=1.5), fixed(timedelta(hours=1.5))]
    assert same == [same[0]] * 5
    assert fixed(hours=1, minutes=30) == same[0]
    assert exponential(base=timedelta(seconds=1), cap=timedelta(minutes=1)) == exponential(1, 60)


@each(
    "kind, given",
    [
        (fixed, {}),
        (fixed, {"minutes": -1}),
        (fixed, {"seconds": math.nan}),
        (fixed, {"seconds": math.inf}),
        (exponential, {"base": 0}),
        (exponential, {"cap": -1}),
        (exponential, {"factor": 0.5}),
        (exponential, {"factor": 101}),
        (exponential, {"base": math.nan}),
        (exponential, {"factor": math.nan}),
    ],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_a_backoff_of_impossible_delays_is_refused(kind: Callable[..., Backoff], given: dict[str, float]) -> None:
    with pytest.raises(InvalidArguments):
        kind(**given)


@each("backoff", [fixed(minutes=5), exponential(3, 70, 1.5), DEFAULT_BACKOFF])
def test_a_backoff_survives_its_row(backoff: Backoff) -> None:
    assert Backoff.from_json(backoff.to_json()) == backoff
    assert isinstance(json.loads(backoff.to_json()), dict)
    assert Backoff.from_json(None) == DEFAULT_BACKOFF


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("fixed"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
STORED = st.fixed_dictionaries(
    {"kind": st.sampled_from(["fixed", "exponential", "fixed", 7]) | JSON, "base": st.floats() | st.integers() | JSON},
    optional={"cap": st.floats() | JSON, "factor": st.floats() | JSON, "else": JSON},
)


@given(stored=STORED.map(json.dumps) | JSON.map(json.dumps) | st.text(), tries=st.integers(-5, 10**6))
def test_whatever_is_stored_as_a_backoff_its_delays_can_be_stored(stored: str, tries: int) -> None:
    for draw in DRAWS:
        assert 0 <= Backoff.from_json(stored).delay(tries, draw) <= 1.2 * 3_200_000_000


@each(
    "stored",
    [
        ("linear", 1, 1),
        ("fixed", 1e300, 1),
        ("exponential", 1, math.nan),
        ("exponential", 1, 1, 1e200),
        ("exponential", 1, 1, True),
    ],
)
def test_a_backoff_that_cannot_be_computed_cannot_be_made(stored: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArguments):
        Backoff(*stored)


def test_the_rows_own_backoff_decides() -> None:
    assert fails(Job(backoff=fixed(minutes=5).to_json()), draw=0.0) == (State.RETRYABLE, 300)
    assert fails(Job(), draw=0.0) == (State.RETRYABLE, 5)


@each("draw", DRAWS)
def test_a_delay_the_handler_asks_for_is_never_cut_short(draw: float) -> None:
    state, delay = fails(Job(backoff=fixed(hours=1).to_json()), draw, after=100.0)
    assert state is State.RETRYABLE
    assert 100 <= delay <= 120


@pytest.mark.parametrize("draw", DRAWS)
def test_the_next_try_waits_for_the_backoff_and_for_the_time_that_the_source_asked_for(draw: float) -> None:
    short, long = fixed(minutes=1).to_json(), fixed(hours=1).to_json()
    assert 600 <= fails(Job(backoff=short), draw, retry_after=600.0)[1] <= 720
    assert 3600 <= fails(Job(backoff=long), draw, retry_after=600.0)[1] <= 4320


def test_a_handler_may_ask_for_the_next_try_at_once() -> None:
    assert fails(Job(), after=0.0) == (State.RETRYABLE, 0)


def test_ten_thousand_failures_at_once_do_not_return_at_once() -> None:
    seconds = [0] * 11
    for n in range(10_000):
        seconds[int(DEFAULT_BACKOFF.delay(1, n / 10_000))] += 1
    assert max(seconds) <= 3 * 10_000 / 5


# The other ends


def test_a_success_keeps_its_result() -> None:
    transition = decide(Job(), Succeeded('{"a": 1}'), 0.5)
    assert (transition.state, transition.outcome, transition.result) == ("succeeded", "succeeded", '{"a": 1}')
    assert transition.error_code is None


def test_the_error_of_a_timeout_names_its_seconds() -> None:
    transition = decide(Job(), TimedOut(30), 0.5)
    assert (transition.outcome, transition.error_code) == (Outcome.TIMED_OUT, "TIMEOUT")
    assert "30 s" in (transition.error_message or "")


def test_a_release_goes_back_to_queued_and_is_counted() -> None:
    transition = decide(Job(attempt=99, max_attempts=1, releases=90), Released(7, "deploy"), 0.5)
    assert (transition.state, transition.outcome, transition.delay) == (State.QUEUED, Outcome.RELEASED, 7)
    assert (transition.released, transition.lost, transition.convicted) == (1, 0, 0)


def test_a_release_of_a_job_to_be_cancelled_is_its_cancelling() -> None:
    assert decide(Job(cancel_requested=True), Released(7), 0.5).state is State.CANCELLED


def test_a_cancelled_attempt_is_cancelled() -> None:
    assert decide(Job(), Cancelled(), 0.5).state is State.CANCELLED


# Losses and poison


def test_a_loss_is_retried_whatever_tries_are_left() -> None:
    transition = decide(Job(attempt=5, max_attempts=1), Lost("w-1"), 0.5)
    assert (transition.state, transition.outcome, transition.error_code) == ("retryable", "lost", "WORKER_LOST")
    assert (transition.lost, transition.convicted, transition.released) == (1, 0, 0)
    assert "w-1" in (transition.error_message or "")


@each("losses, top", [(0, 1), (1, 2), (5, 32), (6, 64), (8, 64)])
def test_the_delay_after_a_loss_doubles_up_to_64_seconds(losses: int, top: float) -> None:
    assert decide(Job(losses_in_row=losses), Lost(), 0.0).delay == 0
    assert decide(Job(losses_in_row=losses), Lost(), 0.5).delay == top / 2


def test_ten_losses_in_a_row_end_a_job_without_a_conviction() -> None:
    states = [decide(Job(attempt=n + 1, losses_in_row=n, max_attempts=99), Lost(), 0.5).state for n in range(10)]
    assert states == [State.RETRYABLE] * 9 + [State.DEAD]
    assert decide(Job(losses_in_row=9), Lost(), 0.5).error_code == "WORKER_LOST"
    assert decide(Job(losses=99), Lost(), 0.5).state is State.RETRYABLE, "the sum over its life ended it"


def test_the_second_conviction_is_poison() -> None:
    first = decide(Job(losses=1), Lost(convicted=True, detail="signal 9"), 0.5)
    assert (first.state, first.error_code, first.convicted, first.lost) == ("retryable", "CHILD_DIED", 1, 1)
    assert first.error_message == "signal 9"
    second = decide(Job(losses=2, convictions=1), Lost(convicted=True), 0.5)
    assert (second.state, second.error_code, second.convicted) == (State.DEAD, "POISON", 1)


def test_an_innocent_loss_convicts_nobody() -> None:
    assert decide(Job(losses=2, convictions=1), Lost(), 0.5).state is State.RETRYABLE
    # Two convictions, then an operator's retry: only another conviction is poison again.
    assert decide(Job(losses=3, convictions=2), Lost(), 0.5).state is State.RETRYABLE
    assert decide(Job(losses=3, convictions=2), Lost(convicted=True), 0.5).error_code == "POISON"


def test_a_task_that_must_not_run_twice_is_dead_at_its_first_loss() -> None:
    assert decide(Job(on_lost="dead"), Lost(), 0.5).state is State.DEAD
    assert decide(Job(on_lost="dead"), Lost(convicted=True), 0.5).state is State.DEAD


@each("job", [Job(), Job(on_lost="dead"), Job(losses_in_row=9), Job(losses=2, convictions=1)])
@each("convicted", [False, True])
def test_a_lost_job_to_be_cancelled_is_cancelled_and_never_retried(job: Job, convicted: bool) -> None:
    transition = decide(replace(job, cancel_requested=True), Lost(convicted=convicted), 0.5)
    assert (transition.state, transition.error_code) == (State.CANCELLED, "CANCELLED")


# Whatever happens

counts = st.integers(0, 30)
ends = st.one_of(
    st.just(Succeeded(None)),
    st.just(Cancelled()),
    st.builds(
        Failed,
        st.just("E"),
        st.just("m"),
        st.none() | st.floats(0, 1e6, allow_nan=False),
        st.booleans(),
    ),
    st.builds(TimedOut, st.floats(0.1, 1e6)),
    st.builds(Released, st.floats(0, 1e6)),
    st.builds(Lost, st.just("w"), st.booleans()),
)


@given(
    job=st.builds(
        Job,
        attempt=st.integers(1, 100),
        max_attempts=st.integers(1, 100),
        releases=counts,
        losses=counts,
        convictions=st.integers(0, 3),
        losses_in_row=counts,
        probation=st.integers(0, 200),
        sigterms_in_row=counts,
        disconnects_in_row=counts,
        backoff=st.sampled_from([None, fixed(minutes=5).to_json(), exponential(1, 60).to_json()]),
        on_lost=st.sampled_from([None, "dead"]),
        cancel_requested=st.booleans(),
    ),
    end=ends,
    draw=st.floats(0, 1, exclude_max=True),
)
def test_every_decision_is_an_arrow_of_the_state_machine(job: Job, end: AttemptEnd, draw: float) -> None:
    transition = decide(job, end, draw)
    assert transition.state in allowed(State.RUNNING, transition.outcome)
    assert transition.delay >= 0
    assert transition.delay == 0 or transition.state not in FINAL
    assert (transition.result is None) or transition.state is State.SUCCEEDED
    assert transition.released + transition.lost <= 1
    assert decide(job, end, draw) == transition  # pure


# The table of states


@each("outcome", Outcome)
@each("state", State)
def test_a_transition_that_is_not_in_the_table_cannot_be_made(state: State, outcome: Outcome) -> None:
    if state in allowed(State.RUNNING, outcome):
        assert Transition(state, outcome).state is state
    else:
        with pytest.raises(NotAllowed, match=f"ended {outcome} cannot become {state}"):
            Transition(state, outcome)


@each(
    "end, job",
    [
        (Failed("E", "no"), Job()),
        (Failed("E", "no"), Job(max_attempts=1)),
        (TimedOut(3), Job()),
        (Released(0), Job()),
        (Lost(), Job()),
        (Succeeded("1"), Job()),
    ],
)
def test_decide_refuses_a_state_that_the_table_does_not_allow(
    monkeypatch: pytest.MonkeyPatch, end: AttemptEnd, job: Job
) -> None:
    decided = decide(job, end, 0.5)
    rest = allowed(State.RUNNING, decided.outcome) - {decided.state}
    with monkeypatch.context() as patch:
        patch.setitem(TRANSITIONS, (State.RUNNING, str(decided.outcome)), rest)
        with pytest.raises(NotAllowed):
            decide(job, end, 0.5)
