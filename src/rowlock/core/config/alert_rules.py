"""Alert rules as the config has them: their kinds, their keys, and the errors of wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rowlock.core.durations import parse_duration
from rowlock.core.errors import InvalidArguments
from rowlock.core.policy import DAY


class AlertKind(NamedTuple):
    """What a rule may look at: the word for its subjects, and its limit if it has one."""

    subjects: str
    above: float | None  # the default limit; None: the rule has none
    seconds: bool = False  # the limit is a time
    hold: float = 0.0


KINDS: dict[str, AlertKind] = {
    "running_seconds": AlertKind("queues", 300.0, seconds=True),  # a job has been running for longer than `above`
    "queued": AlertKind("queues", 10.0, hold=60.0),  # more than `above` jobs are ready in a queue and wait for a slot
    "oldest_seconds": AlertKind("queues", 600.0, seconds=True),  # a ready job has been waiting for longer than `above`
    "dead": AlertKind("tasks", 0.0),  # more than `above` jobs of a task became dead in the last `within`
    "no_worker": AlertKind("queues", None, hold=60.0),  # no live worker serves a queue, or none lives at all
    "breaker_open": AlertKind("sources", None),  # the breaker of a source is open
    "missed_ticks": AlertKind(
        "schedules", 60.0, seconds=True
    ),  # a tick is due for longer than `above` and was not fired
}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule, as the config has it."""

    name: str
    when: str
    above: float = 0.0
    hold: float = 0.0  # `for` in the config
    resolve_after: float = 60.0
    repeat: float = 3600.0
    within: float = 600.0
    only: tuple[str, ...] = ()


def parse_rules(given: object, repeat: float = 3600.0) -> tuple[AlertRule, ...]:
    """Rules by name, as a config file has them. Raises InvalidArguments with the rule and the key."""
    if not isinstance(given, Mapping):
        raise InvalidArguments("must be a mapping of rules, such as hanging: {when: running_seconds, above: 5m}")
    return tuple(_rule(name, settings, repeat) for name, settings in given.items())


def _rule(name: object, given: object, repeat: float) -> AlertRule:
    if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
        raise InvalidArguments(f"rule {name!r}: a name must be text of 1 to 100 printable characters")
    if not isinstance(given, Mapping):
        raise InvalidArguments(f"rule {name!r} must have settings such as {{when: queued, above: 10}}, not {given!r}")
    when = given.get("when")
    if when not in KINDS:
        raise InvalidArguments(f"rule {name!r}: when must be one of {', '.join(KINDS)}, not {when!r}")
    kind = KINDS[when]
    allowed = ["when", "for", "resolve_after", "repeat", "only"]
    allowed += ["above"] if kind.above is not None else []
    allowed += ["within"] if when == "dead" else []
    for key in given:
        if key not in allowed:
            from difflib import get_close_matches

            close = get_close_matches(str(key), allowed, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(allowed)}"
            raise InvalidArguments(f"rule {name!r}: no such key for {when}: {key!r}; {hint}")

    def seconds(key: str, otherwise: float, least: float = 0.0) -> float:
        return _seconds(name, key, given[key], least) if key in given else otherwise

    above = kind.above or 0.0
    if "above" in given:
        above = _seconds(name, "above", given["above"], 0.0) if kind.seconds else _number(name, given["above"])
    return AlertRule(
        name,
        when,
        above,
        hold=seconds("for", kind.hold),
        resolve_after=seconds("resolve_after", 60.0),
        repeat=seconds("repeat", repeat, 1.0),
        within=seconds("within", 600.0, 1.0),
        only=_only(name, given.get("only", ()), kind),
    )


def _seconds(rule: str, key: str, value: object, least: float) -> float:
    found = parse_duration(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not least <= found <= 366 * DAY:
        wanted = f"{key} must be a time such as 30, 30s, 5m or 2h"
        raise InvalidArguments(f"rule {rule!r}: {wanted}{f', at least {least:g} s' if least else ''}, not {value!r}")
    return float(found)


def _number(rule: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise InvalidArguments(f"rule {rule!r}: above must be a number from 0, not {value!r}")
    return float(value)


def _only(rule: str, value: object, kind: AlertKind) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArguments(f"rule {rule!r}: only must be {kind.subjects}, one or a list, not {value!r}")
    return tuple(names)
