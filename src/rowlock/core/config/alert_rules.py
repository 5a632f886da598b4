"""Parses and checks the alert rules of the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowlock.core.errors import InvalidArguments
from rowlock.core.policy import DAY
from rowlock.core.times import parse_duration


class AlertKind(NamedTuple):
    """A kind of alert rule: the word for its subjects, and its limit if it has one."""

    subjects: str
    above: float | None  # the default limit; None: such rules have no limit
    seconds: bool = False  # the limit is a duration
    hold: float = 0.0


KINDS: dict[str, AlertKind] = {
    "running_seconds": AlertKind("queues", 300.0, seconds=True),  # a job has been running for longer than `above`
    "queued": AlertKind("queues", 10.0, hold=60.0),  # more than `above` ready jobs in a queue wait for a slot
    "oldest_seconds": AlertKind("queues", 600.0, seconds=True),  # a ready job has been waiting for longer than `above`
    "dead": AlertKind("tasks", 0.0),  # more than `above` jobs of a task became dead in the last `within`
    "no_worker": AlertKind("queues", None, hold=60.0),  # no live worker serves a queue, or no worker is alive
    "breaker_open": AlertKind("sources", None),  # the breaker of a source is open
    "missed_ticks": AlertKind("schedules", 60.0, seconds=True),  # a tick is overdue by more than `above`
}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule of the config."""

    name: str
    when: str
    above: float = 0.0
    hold: float = 0.0  # `for` in the config
    resolve_after: float = 60.0
    repeat: float = 3600.0
    within: float = 600.0
    only: tuple[str, ...] = ()


def parse_rules(given: object, repeat: float = 3600.0) -> tuple[AlertRule, ...]:
    """Parse the mapping of rules by name in a config file. Raises InvalidArguments with the rule and the key."""
    if not isinstance(given, Mapping):
        raise InvalidArguments("must map names to rules, as in hanging: {when: running_seconds, above: 5m}")
    rules = []
    for name, settings in given.items():
        try:
            rules.append(_rule(name, settings, repeat))
        except InvalidArguments as error:
            raise InvalidArguments(f"rule {name!r}: {error}") from None
    return tuple(rules)


def _rule(name: object, given: object, repeat: float) -> AlertRule:
    if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
        raise InvalidArguments("a name must be text of 1 to 100 printable characters")
    if not isinstance(given, Mapping):
        raise InvalidArguments(f"must have settings such as {{when: queued, above: 10}}, not {given!r}")
    when = given.get("when")
    if not isinstance(when, str) or when not in KINDS:
        raise InvalidArguments(f"when must be one of {', '.join(KINDS)}, not {when!r}")
    kind = KINDS[when]
    allowed = ["when", "for", "resolve_after", "repeat", "only"]
    allowed += ["above"] if kind.above is not None else []
    allowed += ["within"] if when == "dead" else []
    for key in given:
        if key not in allowed:
            from difflib import get_close_matches

            close = get_close_matches(str(key), allowed, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(allowed)}"
            raise InvalidArguments(f"no such key for {when}: {key!r}; {hint}")
    return AlertRule(
        name,
        when,
        _seconds(given, "above", kind.above or 0.0) if kind.seconds else _number(given.get("above", kind.above or 0.0)),
        hold=_seconds(given, "for", kind.hold),
        resolve_after=_seconds(given, "resolve_after", 60.0),
        repeat=_seconds(given, "repeat", repeat, 1.0),
        within=_seconds(given, "within", 600.0, 1.0),
        only=_only(given.get("only", ()), kind),
    )


def _seconds(given: Mapping[str, Any], key: str, default: float, least: float = 0.0) -> float:
    value = given.get(key, default)
    found = parse_duration(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not least <= found <= 366 * DAY:
        wanted = f"{key} must be a time such as 30, 30s, 5m or 2h"
        raise InvalidArguments(f"{wanted}{f', at least {least:g} s' if least else ''}, not {value!r}")
    return float(found)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise InvalidArguments(f"above must be a number of at least 0, not {value!r}")
    return float(value)


def _only(value: object, kind: AlertKind) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArguments(f"only must be {kind.subjects}, one name or a list of names, not {value!r}")
    return tuple(names)
