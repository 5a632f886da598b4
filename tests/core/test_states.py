"""The state machine's table: complete, closed, and the same as the drawing made from it."""

import re

from rowlock.core.states import FINAL, LIVE, TRANSITIONS, Outcome, State, allowed
from support.each import each
from support.files.state_diagram import EVENTS, diagram

# The contract's drawing, arrow by arrow: before, what happens, after.
ARROWS = {
    ("queued", "claim", "running"),
    ("retryable", "claim", "running"),
    ("running", "succeeded", "succeeded"),
    ("running", "failed", "retryable"),
    ("running", "failed", "dead"),
    ("running", "timed_out", "retryable"),
    ("running", "timed_out", "dead"),
    ("running", "lost", "retryable"),
    ("running", "lost", "dead"),
    ("running", "lost", "cancelled"),
    ("running", "cancelled", "cancelled"),
    ("running", "released", "queued"),
    ("running", "released", "cancelled"),
    ("queued", "cancel", "cancelled"),
    ("retryable", "cancel", "cancelled"),
    ("queued", "expire", "cancelled"),
    ("retryable", "expire", "cancelled"),
    ("dead", "retry", "queued"),
    ("cancelled", "retry", "queued"),
}


def test_the_states_and_outcomes_are_those_of_the_contract() -> None:
    assert list(State) == ["queued", "running", "retryable", "succeeded", "dead", "cancelled"]
    assert set(Outcome) == {"succeeded", "failed", "timed_out", "lost", "cancelled", "released"}


def test_every_state_is_either_live_or_final() -> None:
    assert frozenset(State) == LIVE | FINAL
    assert not LIVE & FINAL
    assert {State.SUCCEEDED, State.DEAD, State.CANCELLED} == FINAL


TABLE = {(str(a), str(event), str(b)) for (a, event), after in TRANSITIONS.items() for b in after}


def test_the_table_has_the_arrows_of_the_contract() -> None:
    assert TABLE == ARROWS


@each("state", State)
@each("event", EVENTS)
def test_a_step_that_the_table_of_states_does_not_have_is_refused(state: State, event: str) -> None:
    assert {str(after) for after in allowed(state, event)} == {
        after for before, what, after in ARROWS if (before, what) == (state, event)
    }


def test_every_event_happens_somewhere_and_every_outcome_ends_running_only() -> None:
    assert {str(event) for _, event in TRANSITIONS} == {str(event) for event in EVENTS}
    assert {state for state, event in TRANSITIONS if event in set(Outcome)} == {State.RUNNING}


def test_success_is_never_left_and_a_final_state_only_by_an_operators_retry() -> None:
    assert not [event for state, event in TRANSITIONS if state is State.SUCCEEDED]
    assert {event for state, event in TRANSITIONS if state in FINAL} == {"retry"}


def test_from_every_live_state_every_final_state_can_be_reached() -> None:
    reached = {state: {state} for state in State}
    for _ in State:
        for (before, _event), after in TRANSITIONS.items():
            reached[before] |= set().union(*(reached[state] for state in after))
    assert all(reached[state] >= FINAL for state in LIVE)


def test_the_drawing_shows_each_arrow_once() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+) : (\w+)$", diagram(), re.MULTILINE)
    assert len(drawn) == len(TABLE)
    assert {(before, event, after) for before, after, event in drawn} == TABLE
    assert diagram().startswith("stateDiagram-v2\n    [*] --> queued : enqueue\n")
    assert set(re.findall(r"^    (\w+) --> \[\*\]$", diagram(), re.MULTILINE)) == {str(state) for state in FINAL}
