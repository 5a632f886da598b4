"""Readings for the metrics of the server, each at a bounded cost."""

from __future__ import annotations

from typing import NamedTuple

from rowlock.core.source import default_burst
from rowlock.store.engines.operation import Call, Steps, operation

SOURCES = 2_000  # most that one reading looks at


class SourceLevel(NamedTuple):
    """A source now."""

    name: str
    state: str  # open, paused, disabled, broken or half-open, as `Source.state` says it
    tokens: float | None  # starts that its rate limit allows now; None: it has none


@operation(read=True)
def source_levels(n: int = SOURCES) -> Steps[list[SourceLevel]]:
    """Up to `n` sources, those with limits of their own first."""
    found = []
    for row in (yield Call("source_levels", n=n)):
        if not row.enabled:
            state = "disabled"
        elif row.opened:
            state = "broken" if row.paused else "half-open"
        else:
            state = "paused" if row.paused else "open"
        level = None
        if row.rate is not None:
            most = float(row.burst or default_burst(row.rate))
            left = most if row.tokens is None else row.tokens + row.rate / 60 * max(0.0, row.elapsed or 0.0)
            level = min(most, left)
        found.append(SourceLevel(row.name, state, level))
    return found
