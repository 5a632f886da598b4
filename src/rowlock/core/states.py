"""The state machine, as one table. `core.policy.Transition` refuses changes that are not in it, and the diagram in the
docs is generated from it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a job, as its row stores it."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYABLE = "retryable"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """How one attempt ended. The state of its job follows from that, but is not the same."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"
    RELEASED = "released"


FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
LIVE = frozenset({State.QUEUED, State.RUNNING, State.RETRYABLE})

# (state, event) -> the states that may follow. A pair that is missing here is refused. The events of a running job are
# the outcomes of its attempt.
TRANSITIONS: dict[tuple[State, str], frozenset[State]] = {
    (State.QUEUED, "claim"): frozenset({State.RUNNING}),
    (State.RETRYABLE, "claim"): frozenset({State.RUNNING}),
    (State.RUNNING, "succeeded"): frozenset({State.SUCCEEDED}),
    (State.RUNNING, "failed"): frozenset({State.RETRYABLE, State.DEAD}),
    (State.RUNNING, "timed_out"): frozenset({State.RETRYABLE, State.DEAD}),
    (State.RUNNING, "lost"): frozenset({State.RETRYABLE, State.DEAD, State.CANCELLED}),
    (State.RUNNING, "cancelled"): frozenset({State.CANCELLED}),
    (State.RUNNING, "released"): frozenset({State.QUEUED, State.CANCELLED}),
    (State.QUEUED, "cancel"): frozenset({State.CANCELLED}),
    (State.RETRYABLE, "cancel"): frozenset({State.CANCELLED}),
    (State.QUEUED, "expire"): frozenset({State.CANCELLED}),
    (State.RETRYABLE, "expire"): frozenset({State.CANCELLED}),
    (State.DEAD, "retry"): frozenset({State.QUEUED}),
    (State.CANCELLED, "retry"): frozenset({State.QUEUED}),
}


def allowed(state: State, event: str) -> frozenset[State]:
    """The states that may follow `event` in `state`; empty if the event is refused."""
    return TRANSITIONS.get((state, event), frozenset())
