"""Alert rules: when an alert fires, repeats and is resolved.

A rule is about one or more subjects: a queue, a task, a source, a schedule, or the whole system (the empty subject).
Its condition must hold for a time before it fires (`hold`, written `for`), and must be gone for a time before it is
resolved (`resolve_after`), so that a number which moves around its limit makes one alert and not many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from rowlock.core.config.alert_rules import AlertRule
from rowlock.health.conditions import Condition

Told = Literal["alert.firing", "alert.repeated", "alert.resolved"]


@dataclass(frozen=True, slots=True)
class Alert:
    """The state of one rule for one subject. It is firing once `fired_at` is set."""

    rule: str
    subject: str
    value: float
    text: str
    true_since: datetime
    false_since: datetime | None = None
    fired_at: datetime | None = None
    told_at: datetime | None = None
    repeats: int = 0

    @property
    def state(self) -> str:
        """`pending` (the condition has not held for long enough), `firing`, or `resolving` (it has ceased to hold)."""
        if self.fired_at is None:
            return "pending"
        return "firing" if self.false_since is None else "resolving"


class Decision(NamedTuple):
    """The alert as it is now (None: over), and the message to send, if any."""

    alert: Alert | None
    told: Told | None = None


def decide(rule: AlertRule, subject: str, alert: Alert | None, seen: Condition | None, now: datetime) -> Decision:
    """The next state of an alert, from whether the rule's condition holds. A stored time in the future was written by a
    clock that was ahead, and counts as now."""
    if seen is None:
        return _gone(rule, alert, now)
    if alert is None:
        alert = Alert(rule.name, subject, seen.value, seen.text, true_since=now)
    alert = replace(alert, value=seen.value, text=seen.text, false_since=None, true_since=min(alert.true_since, now))
    if alert.fired_at is None:
        if _passed(alert.true_since, rule.hold, now):
            return Decision(replace(alert, fired_at=now, told_at=now), "alert.firing")
    elif _passed(min(alert.told_at or now, now), rule.repeat, now):
        return Decision(replace(alert, told_at=now, repeats=alert.repeats + 1), "alert.repeated")
    return Decision(alert)


def _gone(rule: AlertRule, alert: Alert | None, now: datetime) -> Decision:
    if alert is None or alert.fired_at is None:
        return Decision(None)
    since = min(alert.false_since or now, now)
    if _passed(since, rule.resolve_after, now):
        return Decision(None, "alert.resolved")
    return Decision(replace(alert, false_since=since))


def _passed(since: datetime, seconds: float, now: datetime) -> bool:
    return now - since >= timedelta(seconds=seconds)
