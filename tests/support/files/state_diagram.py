"""The drawing of the state machine in the docs, from the table in core/states.py."""

from rowlock.core.states import FINAL, TRANSITIONS, Outcome

EVENTS = ("claim", *Outcome, "cancel", "expire", "retry")


def diagram() -> str:
    """The state machine as a Mermaid drawing."""
    lines = ["stateDiagram-v2", "    [*] --> queued : enqueue"]
    for (before, event), after in TRANSITIONS.items():
        lines += [f"    {before} --> {state} : {event}" for state in sorted(after)]
    lines += [f"    {state} --> [*]" for state in sorted(FINAL)]
    return "\n".join(lines) + "\n"
