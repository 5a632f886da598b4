"""Alerts: when they fire, repeat and are resolved; which process evaluates the rules; messages until they arrive.

A rule is about one or more subjects: a queue, a task, a source, a schedule, or the whole system (the empty subject).
Its condition must hold for a while before the alert fires (`hold`, written `for` in the config), and be gone for a
while before the alert is resolved (`resolve_after`): a number hovering around its limit causes one alert, not many.

One process at a time holds the lease and evaluates the rules. The lease's token fences its writes, so a process that
was frozen with an old snapshot changes nothing. A message is stored in the same transaction as the change it reports:
if a process dies before sending it, the next holder of the lease does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from rowlock.core.config.alert_rules import AlertRule
from rowlock.health.conditions import Condition, see
from rowlock.store.engine import clock
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Operation, Steps, operation
from rowlock.store.engine.records import parsed, record
from rowlock.store.read.snapshot import Snapshot, snapshot

MessageType = Literal["alert.firing", "alert.repeated", "alert.resolved"]


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
        """`pending` (the condition has not held for long enough), `firing`, or `resolving` (it no longer holds)."""
        if self.fired_at is None:
            return "pending"
        return "firing" if self.false_since is None else "resolving"


class Decision(NamedTuple):
    """The alert's next state (None: it is over), and the type of the message to send, if any."""

    alert: Alert | None
    message: MessageType | None = None


def decide(rule: AlertRule, subject: str, alert: Alert | None, seen: Condition | None, now: datetime) -> Decision:
    """The next state of an alert: `seen` is the rule's condition if it holds. A stored time in the future comes from a
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


@dataclass(frozen=True, slots=True)
class Message:
    """A message that has not arrived yet."""

    id: str
    type: str
    body: dict[str, Any]
    attempts: int
    wait: float = 0.0  # seconds until its next attempt
    age: float = 0.0
    last_error: str | None = None


@operation(repeatable=True)
def take(holder: str, token: str, lease: float) -> Steps[float]:
    """Take or renew the lease. Returns 0 if `token` has it now, else the seconds until the other process's ends."""
    found = yield Call("alert_lease")
    if found and found[0].holder != holder and 0 < found[0].seconds <= 3600:
        return float(found[0].seconds)  # avoid a write that can't take anything
    if (yield Call("take_alert_lease", holder=holder, token=token, lease=lease)):
        return 0.0
    return lease


@operation(single=True, repeatable=True)
def leave(token: str) -> Steps[None]:
    """Give up the lease, so that another process doesn't have to wait until it expires."""
    yield Call("leave_alert_lease", token=token)


def look(rules: Sequence[AlertRule]) -> Operation[Snapshot]:
    """The snapshot that these rules need."""
    return snapshot({rule.within for rule in rules if rule.when == "dead"})


@operation()
def evaluate(token: str, rules: Sequence[AlertRule], found: Snapshot) -> Steps[bool]:
    """Store the alerts that follow from a snapshot, and their messages. Returns False and changes nothing if `token`
    has lost the lease."""
    if not (yield Call("hold_alert_lease", token=token)):
        return False
    now = yield from clock.now().start()
    before = {(alert.rule, alert.subject): alert for alert in (yield from alerts().start())}
    decided = _decisions(rules, found, before, now)
    changed = [d.alert for key, d in decided.items() if d.alert is not None and d.alert != before.get(key)]
    if changed:
        yield Call("write_alerts", found=[astuple(alert) for alert in changed])
    for key, decision in decided.items():
        if decision.alert is None and key in before:
            yield Call("drop_alert", rule=key[0], subject=key[1])
    kinds = {rule.name: rule.when for rule in rules}
    messages = []
    for key, (alert, message) in decided.items():
        about = alert or before.get(key)
        if message is not None and about is not None:
            body = _body(about, kinds.get(key[0]), now if alert is None else None)
            messages.append((new_id(), message, json.dumps(body)))
    if messages:
        yield Call("add_alert_messages", made=messages)
    return True


def _decisions(
    rules: Sequence[AlertRule], found: Snapshot, before: dict[tuple[str, str], Alert], now: datetime
) -> dict[tuple[str, str], Decision]:
    decided: dict[tuple[str, str], Decision] = {}
    for rule in rules:
        seen = see(rule, found)
        for subject in {*seen, *(subject for name, subject in before if name == rule.name)}:
            key = (rule.name, subject)
            decided[key] = decide(rule, subject, before.get(key), seen.get(subject), now)
    for key, alert in before.items():  # end alerts whose rule is gone from the config
        if key not in decided:
            decided[key] = Decision(None, "alert.resolved" if alert.fired_at is not None else None)
    return decided


def _body(alert: Alert, when: str | None, resolved_at: datetime | None) -> dict[str, Any]:
    """The data of a message, with keys in camelCase as in the job API."""
    return {
        "rule": alert.rule,
        "when": when,
        "subject": alert.subject,
        "value": alert.value,
        "text": alert.text,
        "since": iso(alert.true_since),
        "firedAt": iso(alert.fired_at),
        "resolvedAt": iso(resolved_at),
        "repeats": alert.repeats,
    }


def iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@operation(read=True)
def alerts() -> Steps[list[Alert]]:
    """All alerts that are not over."""
    return [record(Alert, row) for row in (yield Call("read_alerts"))]


# --- messages


@operation(read=True)
def unsent(n: int) -> Steps[list[Message]]:
    """Messages that have not arrived, oldest first."""
    found = [(row, parsed(row.body)[0]) for row in (yield Call("alert_messages", n=n))]
    return [record(Message, row, body=body if isinstance(body, dict) else {}) for row, body in found]


@operation(single=True, repeatable=True)
def arrived(message_id: str) -> Steps[None]:
    """Delete a message that has arrived, or that won't be tried again."""
    yield Call("alert_message_sent", id=message_id)


@operation(single=True)
def failed(message_id: str, wait: float, error: str) -> Steps[None]:
    """Count a failed attempt; the next one is `wait` seconds from now."""
    yield Call("alert_message_failed", id=message_id, wait=wait, error=error[:500])
