"""Sources: how many jobs of an outside service may start now, and when its circuit breaker opens. Pure functions.

A source has a name such as `api:ebay`; what stands before the colon is its class, whose settings are its defaults.
`admit` says how many jobs of a source may start, under a lock that the caller holds; `after` is the circuit breaker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from rowlock.core.errors import InvalidArguments

UNLIMITED = 2**31 - 1
HIGHEST_RATE = 1e9  # per minute
THRESHOLD = 5  # failures in a row that open a breaker
COOLDOWN = 300.0  # seconds that it stays open
LONGEST_COOLDOWN = 86_400.0
UNITS = {"s": 60.0, "sec": 60.0, "second": 60.0, "min": 1.0, "minute": 1.0, "h": 1 / 60, "hour": 1 / 60}
NAME = re.compile(r"[^\s:\x00-\x1f\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]{0,198}(?<!:)")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*([a-z]+)")

Why = Literal["disabled", "paused", "breaker", "probe", "saturated", "class", "rate"]
Fault = Literal["source", "refusal"]


def class_of(source: str) -> str:
    """`api` of `api:ebay`; a name without a colon is its own class."""
    return source.partition(":")[0]


def parse_rate(text: str) -> float:
    """`30/min`, `2/s` or `500/hour` as a number per minute."""
    match = _RATE.fullmatch(text.strip().lower())
    if match is None or match[2] not in UNITS:
        raise InvalidArguments(f"a rate needs a number and a unit, such as 30/min, 2/s or 500/hour; not {text!r}")
    per_minute = float(match[1]) * UNITS[match[2]]
    if not per_minute > 0:
        raise InvalidArguments(f"a rate must be greater than zero, not {text!r}; to stop a source, pause it")
    if per_minute > HIGHEST_RATE:
        most = f"a rate must be at most {HIGHEST_RATE:,.0f}/min"
        raise InvalidArguments(f"{most}, not {text[:50]!r}; to lift it, leave it out")
    return per_minute


def show_rate(per_minute: float) -> str:
    """A rate as people write it: 30/min."""
    if per_minute >= 600 and per_minute % 60 == 0:
        return f"{per_minute / 60:g}/s"
    return f"{per_minute:g}/min" if per_minute >= 1 else f"{per_minute * 60:g}/hour"


def default_burst(per_minute: float) -> int:
    """The tokens of one second at this rate, at least one."""
    return max(1, math.floor(per_minute / 60))


def level(rate: float, burst: int | None, tokens: float | None, elapsed: float | None) -> float:
    """Tokens in a bucket that had `tokens` of them `elapsed` seconds ago, at this rate per minute."""
    most = float(burst or default_burst(rate))
    return most if tokens is None else min(most, tokens + rate / 60 * max(0.0, elapsed or 0.0))


# --- the gate


class Gate(NamedTuple):
    """Everything that decides whether jobs of a source may start: its limits and those of its class, pause, breaker,
    token bucket and running jobs. Times in seconds."""

    concurrency: int | None
    total: int | None
    rate: float | None  # per minute
    burst: int | None
    enabled: bool
    paused_for: float | None
    opened: bool  # the breaker is open, or half open once the pause is over
    probing: bool
    tokens: float | None
    elapsed: float | None  # seconds since the bucket had `tokens`
    epoch: int
    running: int | None
    class_running: int | None
    has_row: bool
    has_class: bool

    @property
    def governed(self) -> bool:
        """Whether a claim must lock the source's row: it has a limit, a rate or an open breaker."""
        return self.opened or not (self.concurrency is None and self.total is None and self.rate is None)

    @property
    def ahead(self) -> bool:
        """Whether the bucket was last written at a time in the future, by a clock that was ahead."""
        return self.elapsed is not None and self.elapsed < -1.0

    @property
    def level(self) -> float | None:
        """Tokens in the bucket now; None without a rate. A clock that went back adds none."""
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
    """How many jobs of a source may start now; if none, why, and the seconds until that may change, where known."""

    room: int
    why: Why | None = None
    wait: float | None = None
    probe: bool = False
    class_room: int = UNLIMITED


def admit(gate: Gate) -> Admission:
    """How many jobs of a source may start now. Checks the strictest condition first, so that `why` names what must
    change first."""
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


# --- the breaker


class Event(NamedTuple):
    """What one attempt says about its source."""

    kind: Literal["success", "failure", "refusal", "none"]
    epoch: int
    retry_after: float | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The breaker's part of a source's row."""

    streak: int = 0
    threshold: int = THRESHOLD
    cooldown: float = COOLDOWN
    factor: float = 1.0
    epoch: int = 0
    opened: bool = False
    opens: int = 0
    refusals: int = 0
    block_after: int | None = None
    enabled: bool = True
    paused_for: float | None = None


def after(health: Health, event: Event) -> Health:
    """The health after an event. An attempt that was claimed before the breaker last opened or closed is ignored,
    except for the time for which the source asked to get no requests."""
    if event.retry_after is not None and event.retry_after > (health.paused_for or 0.0):
        health = replace(health, paused_for=event.retry_after)
    if event.epoch != health.epoch:
        return health
    if event.kind == "success":
        closed = replace(health, streak=0, refusals=0)
        if not health.opened:
            return closed
        # A pause that is not over was made meanwhile, by an operator or the source, and stays.
        paused_for = health.paused_for if (health.paused_for or 0.0) > 0 else None
        return replace(closed, opened=False, opens=0, epoch=health.epoch + 1, paused_for=paused_for)
    if event.kind == "failure":
        failed = replace(health, streak=health.streak + 1)
        return _opened(failed) if health.opened or failed.streak >= health.threshold else failed
    if event.kind == "refusal":
        refused = health.refusals + 1
        blocked = health.block_after is not None and refused >= health.block_after
        return replace(health, refusals=refused, enabled=health.enabled and not blocked)
    return health


def _opened(health: Health) -> Health:
    cooldown = min(health.cooldown * health.factor ** min(health.opens, 50), LONGEST_COOLDOWN)
    return replace(
        health,
        opened=True,
        opens=health.opens + 1,
        epoch=health.epoch + 1,
        paused_for=max(cooldown, health.paused_for or 0.0),
    )


# --- policy


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a source, or of each source of a class. None: the setting of the class, else no limit."""

    concurrency: int | None = None
    total: int | None = None  # of a class: running jobs of all of its sources
    rate: float | None = None  # per minute
    burst: int | None = None
    threshold: int | None = None
    cooldown: float | None = None
    factor: float | None = None
    block_after: int | None = None


# What is there from the start, written by a migration, and holds where neither a config nor an operator says otherwise:
# who sets another limit of a class does not mean to lift this one. `unlimited` does.
SHIPPED = {"domain": Policy(concurrency=2)}


def check_name(name: object) -> str:
    """The name of a source or a class, if it is valid; else InvalidArguments."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidArguments(
            f"a source is named like api:ebay or domain:example.com (1–200 characters of UTF-8, none of them"
            f" control characters), and a class like api; not {name!r:.250}"
        )
    return name


def check_policy(name: str, changes: dict[str, object]) -> dict[str, float | int | None]:
    """The settings in `changes`, ready to be stored; the first wrong one is an error that names it."""
    checked: dict[str, float | int | None] = {}
    for key, value in changes.items():
        if key not in _CHECKS:
            raise InvalidArguments(f"source {name!r}: no setting {key!r}; there are {', '.join(_CHECKS)}")
        checked[key] = None if value is None else _CHECKS[key](f"{key} of source {name!r}", value)
    if checked.get("total") is not None and ":" in name:
        raise InvalidArguments(f"total is for a class: set it on {class_of(name)!r}, not on the source {name!r}")
    return checked


def _limit(what: str, value: object, least: int = 0) -> int:
    if value == "unlimited" and least == 0:
        return UNLIMITED
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= UNLIMITED:
        raise InvalidArguments(f"{what} must be a whole number from {least}, not {value!r}")
    return value


def _from_one(what: str, value: object) -> int:
    return _limit(what, value, 1)


def _rate(what: str, value: object) -> float:
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} must be a number with a unit, such as 30/min or 2/s, not {value!r}")
    return parse_rate(value)


def _span(what: str, value: object, least: float = 0.001, most: float = 31 * 86_400.0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InvalidArguments(f"{what} must be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


_CHECKS: dict[str, Callable[[str, object], float | int]] = {
    "concurrency": _limit,
    "total": _limit,
    "rate": _rate,
    "burst": _from_one,
    "threshold": _from_one,
    "cooldown": _span,
    "factor": lambda what, value: _span(what, value, 1, 100),
    "block_after": _from_one,
}
