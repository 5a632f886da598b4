"""Parses and checks the settings of sources: names, rates and limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rowlock.core.errors import InvalidArguments, whole
from rowlock.core.sources.admission import UNLIMITED, class_of

HIGHEST_RATE = 1e9  # per minute
UNITS = {"s": 60.0, "sec": 60.0, "second": 60.0, "min": 1.0, "minute": 1.0, "h": 1 / 60, "hour": 1 / 60}
NAME = re.compile(r"[^\s:\x00-\x1f\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]{0,199}(?<!:)")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*([a-z]+)")


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
        raise InvalidArguments(f"{most}, not {text[:50]!r}; for no limit, leave it out")
    return per_minute


def show_rate(per_minute: float) -> str:
    """A rate as people write it: 30/min."""
    if per_minute >= 600 and per_minute % 60 == 0:
        return f"{per_minute / 60:g}/s"
    return f"{per_minute:g}/min" if per_minute >= 1 else f"{per_minute * 60:g}/hour"


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a source, or of each source in a class. None: as the class has it, else unlimited."""

    concurrency: int | None = None
    total: int | None = None  # of a class: running jobs of all of its sources
    rate: float | None = None  # per minute
    burst: int | None = None
    threshold: int | None = None
    cooldown: float | None = None
    factor: float | None = None
    block_after: int | None = None


# Limits that a migration (`domain`) or a worker that delivers webhooks writes. Each one holds until a config or an
# operator changes that setting, because somebody who sets a class's total does not mean to lift its concurrency; the
# value `unlimited` lifts it. Webhooks need a total because clients of the API choose the receivers: otherwise receivers
# that hang, each under a different host name, would take all slots of all workers.
SHIPPED = {"domain": Policy(concurrency=2), "webhook": Policy(total=5)}


def check_name(name: object) -> str:
    """The name of a source or class; raises InvalidArguments if it isn't valid."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidArguments(
            f"a source is named like api:ebay or domain:example.com (1–200 characters of UTF-8, none of them"
            f" control characters), and a class like api; not {name!r:.250}"
        )
    return name


def check_policy(name: str, changes: dict[str, object]) -> dict[str, float | int | None]:
    """The settings in `changes`, ready to be stored; raises InvalidArguments that names the first wrong one."""
    checked: dict[str, float | int | None] = {}
    for key, value in changes.items():
        if key not in _CHECKS:
            raise InvalidArguments(f"source {name!r}: no setting {key!r}; there are {', '.join(_CHECKS)}")
        checked[key] = None if value is None else _CHECKS[key](f"{key} of source {name!r}", value)
    if checked.get("total") is not None and ":" in name:
        raise InvalidArguments(f"total is for a class: set it on {class_of(name)!r}, not on the source {name!r}")
    return checked


def _limit(what: str, value: object) -> int:
    return UNLIMITED if value == "unlimited" else whole(value, what, 0)


def _from_one(what: str, value: object) -> int:
    return whole(value, what, 1)


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
