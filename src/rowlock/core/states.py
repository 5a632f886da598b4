"""The state machine, as one table. The drawing in the docs is generated from it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job stands. Stored."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYABLE = "retryable"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """How one attempt ended. Not a state."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"
    RELEASED = "released"


FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})
LIVE = frozenset({State.QUEUED, State.RUNNING, State.RETRYABLE})

# (from, what happens) -> the states that may follow. What is not here is refused.
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

EVENTS = ("claim", *Outcome, "cancel", "expire", "retry")


def allowed(state: State, event: str) -> frozenset[State]:
    """The states that may follow `event` in `state`; empty when it is refused."""
    return TRANSITIONS.get((state, event), frozenset())


def diagram() -> str:
    """The state machine as a Mermaid drawing."""
    lines = ["stateDiagram-v2", "    [*] --> queued : enqueue"]
    for (before, event), after in TRANSITIONS.items():
        lines += [f"    {before} --> {state} : {event}" for state in sorted(after)]
    lines += [f"    {state} --> [*]" for state in sorted(FINAL)]
    return "\n".join(lines) + "\n"
