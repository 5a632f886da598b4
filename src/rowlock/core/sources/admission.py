"""Sources: how many jobs that call an outside service may start now.

A source has a name such as `api:ebay`; the part before the colon is its class, whose settings are its defaults. `admit`
returns how many jobs of a source may start, and the caller holds the source's lock meanwhile. breaker.py has the
circuit breaker, policy.py the settings.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

from rowlock.core.errors import LARGEST

UNLIMITED = LARGEST

Why = Literal["disabled", "paused", "breaker", "probe", "saturated", "class", "rate"]
Fault = Literal["source", "refusal"]


@lru_cache(maxsize=32_768)  # a claim needs it several times for each source
def class_of(source: str) -> str:
    """The class of a source: `api` for `api:ebay`. A name without a colon is its own class."""
    return source.partition(":")[0]


def default_burst(per_minute: float) -> int:
    """The size of the token bucket if none is set: the tokens of one second, but at least one."""
    return max(1, math.floor(per_minute / 60))


def level(rate: float, burst: int | None, tokens: float | None, elapsed: float | None) -> float:
    """The tokens in a bucket that had `tokens` of them `elapsed` seconds ago, at this rate per minute."""
    most = float(burst or default_burst(rate))
    return most if tokens is None else min(most, tokens + rate / 60 * max(0.0, elapsed or 0.0))


def standing(enabled: bool, opened: bool, paused: bool) -> str:
    """The status shown for a source: `open` (jobs may start), `paused`, `disabled`, `broken` or `half-open`."""
    if not enabled:
        return "disabled"
    if opened:
        return "broken" if paused else "half-open"
    return "paused" if paused else "open"


class Gate(NamedTuple):
    """Everything that decides whether jobs of a source may start: its limits and those of its class, pause, breaker,
    token bucket and running jobs. Times in seconds."""

    concurrency: int | None  # how many jobs of the source may run at once; None: any number
    total: int | None  # how many jobs of its class may run at once
    rate: float | None  # per minute
    burst: int | None
    enabled: bool
    paused_for: float | None
    opened: bool  # the breaker is open, or half-open once the pause is over
    probing: bool  # the probe of a half-open breaker is running
    tokens: float | None
    elapsed: float | None  # seconds since the bucket had `tokens`
    epoch: int
    running: int | None  # counted only if there is a `concurrency`
    class_running: int | None  # counted only if there is a `total`
    has_row: bool  # the source has a row to lock

    @property
    def governed(self) -> bool:
        """Whether a claim must lock the source's row: it has a limit, a rate or an open breaker."""
        return self.opened or not (self.concurrency is None and self.total is None and self.rate is None)

    @property
    def ahead(self) -> bool:
        """Whether a clock that was ahead wrote the bucket, so that its last write is in the future."""
        return self.elapsed is not None and self.elapsed < -1.0

    @property
    def level(self) -> float | None:
        """The tokens in the bucket now; None without a rate. A clock that goes back adds no tokens."""
        return None if self.rate is None else level(self.rate, self.burst, self.tokens, self.elapsed)

    def after(self, started: int, started_of_class: int) -> Gate:
        """The gate after `started` more jobs of the source, and `started_of_class` of its class, have started."""
        level = self.level
        return self._replace(
            tokens=self.tokens if level is None else level - started,
            elapsed=self.elapsed if level is None else 0.0,
            running=None if self.running is None else self.running + started,
            class_running=None if self.class_running is None else self.class_running + started_of_class,
            probing=self.probing or (self.opened and started > 0),
            has_row=True,
        )


class Admission(NamedTuple):
    """How many jobs of a source may start now; if none, why, and the seconds until that may change, if known."""

    room: int
    why: Why | None = None
    wait: float | None = None
    probe: bool = False
    class_room: int = UNLIMITED


def admit(gate: Gate) -> Admission:
    """How many jobs of a source may start now. Checks the strictest condition first, so `why` is the one that must
    change before any other matters."""
    if not gate.enabled:
        return Admission(0, "disabled")
    if gate.paused_for is not None and gate.paused_for > 0:
        return Admission(0, "breaker" if gate.opened else "paused", gate.paused_for)
    if gate.opened and gate.probing:
        return Admission(0, "probe")
    room = UNLIMITED if gate.concurrency is None else gate.concurrency - (gate.running or 0)
    if room <= 0:
        return Admission(0, "saturated")
    class_room = UNLIMITED if gate.total is None else gate.total - (gate.class_running or 0)
    if class_room <= 0:
        return Admission(0, "class")
    level = gate.level
    if level is not None:
        whole = math.floor(level + 1e-9)
        if whole < 1:
            return Admission(0, "rate", (1 - level) * 60 / (gate.rate or 1.0))
        room = min(room, whole)
    return Admission(1 if gate.opened else room, probe=gate.opened, class_room=class_room)
