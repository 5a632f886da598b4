"""Alerts: who evaluates the rules, what they have noticed, and messages until they arrive.

One process at a time has the lease and evaluates. What it writes is fenced by the lease's token: a process that was
frozen with an old snapshot changes nothing. Messages are written in the transaction of the change that they report, so
a process that dies before it has sent one leaves it to the next holder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock.core.config.alert_rules import AlertRule
from rowlock.health.conditions import see
from rowlock.health.rules import Alert, Decision, decide
from rowlock.store.engine import clock
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Operation, Row, Steps, operation
from rowlock.store.engine.records import parsed, record
from rowlock.store.read.snapshot import Snapshot, snapshot


@dataclass(frozen=True, slots=True)
class Message:
    """A message that has not arrived yet."""

    id: str
    type: str
    body: dict[str, Any]
    attempts: int
    wait: float = 0.0  # seconds until it may be tried
    age: float = 0.0
    last_error: str | None = None


@operation(repeatable=True)
def take(holder: str, token: str, lease: float) -> Steps[float]:
    """Take or renew the lease. Returns 0 if `token` has it now, else the seconds that another process has it for."""
    found = yield Call("alert_lease")
    if found and found[0].holder != holder and 0 < found[0].seconds <= 3600:
        return float(found[0].seconds)  # no write where there is nothing to take
    if (yield Call("take_alert_lease", holder=holder, token=token, lease=lease)):
        return 0.0
    return lease


@operation(single=True, repeatable=True)
def leave(token: str) -> Steps[None]:
    """Give the lease up, so that another process need not wait for its end."""
    yield Call("leave_alert_lease", token=token)


def look(rules: Sequence[AlertRule]) -> Operation[Snapshot]:
    """Read what these rules look at."""
    return snapshot({rule.within for rule in rules if rule.when == "dead"})


@operation()
def evaluate(token: str, rules: Sequence[AlertRule], found: Snapshot) -> Steps[bool]:
    """Write what follows from a snapshot, with the messages that tell of it. False, and nothing is changed, if `token`
    does not have the lease any more."""
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
    for key, (alert, told) in decided.items():
        about = alert or before.get(key)
        if told is not None and about is not None:
            body = _body(about, kinds.get(key[0]), now if alert is None else None)
            messages.append((new_id(), told, json.dumps(body)))
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
    for key, alert in before.items():  # of rules that are gone from the config: nobody else would end them
        if key not in decided:
            decided[key] = Decision(None, "alert.resolved" if alert.fired_at is not None else None)
    return decided


def _body(alert: Alert, when: str | None, resolved_at: datetime | None) -> dict[str, Any]:
    """The data of a message; keys in camelCase, as in the job API."""
    return {
        "rule": alert.rule,
        "when": when,
        "subject": alert.subject,
        "value": alert.value,
        "text": alert.text,
        "since": _iso(alert.true_since),
        "firedAt": _iso(alert.fired_at),
        "resolvedAt": _iso(resolved_at),
        "repeats": alert.repeats,
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@operation(read=True)
def alerts() -> Steps[list[Alert]]:
    """All alerts that are not over."""
    return [record(Alert, row) for row in (yield Call("read_alerts"))]


# --- messages


@operation(read=True)
def unsent(n: int) -> Steps[list[Message]]:
    """Messages that have not arrived, oldest first."""
    return [_message(row) for row in (yield Call("alert_messages", n=n))]


def _message(row: Row) -> Message:
    body, _ = parsed(row.body)
    return record(Message, row, body=body if isinstance(body, dict) else {})


@operation(single=True, repeatable=True)
def arrived(message_id: str) -> Steps[None]:
    """Delete a message that has arrived or is given up."""
    yield Call("alert_message_sent", id=message_id)


@operation(single=True)
def failed(message_id: str, wait: float, error: str) -> Steps[None]:
    """Note a failed attempt; the next one is `wait` seconds away."""
    yield Call("alert_message_failed", id=message_id, wait=wait, error=error[:500])
