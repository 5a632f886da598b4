"""`rowlock alerts`: list the alerts of the config's rules, and test the rules and the webhook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from rowlock.cli.kit.failures import FAILED, complain
from rowlock.cli.kit.options import Verbs
from rowlock.cli.kit.output import counted, printable, record, show, show_json
from rowlock.cli.kit.target import DataTarget

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.health.alerts import Alert, Message

verbs = Verbs(name="alerts", help="List alerts, and test their rules.")

COLUMNS = ("state", "rule", "subject", "fired_at", "repeats", "text")
UNSENT_SHOWN = 100
NO_RULES = "no rules: add some under alerts.rules in the config"


@verbs.verb("list")
def list_alerts(target: DataTarget) -> None:
    """List pending, firing and resolving alerts, and messages that were not delivered."""
    from rowlock.health import alerts

    async def read(app: Rowlock) -> tuple[list[Alert], list[Message]]:
        return await app.perform(alerts.alerts()), await app.perform(alerts.unsent(UNSENT_SHOWN))

    found, unsent = target.look(read)
    rows = [{"state": alert.state, **record(alert)} for alert in found]
    if target.as_json:
        show_json({"alerts": rows, "unsent": [record(message) for message in unsent]})
        return
    show(rows, COLUMNS, as_json=False, empty="no alerts")
    for message in unsent:
        error = f": {printable(message.last_error)}" if message.last_error else ""
        tried, rule = counted(message.attempts, "attempt"), message.body.get("rule")
        print(f"not delivered after {tried}: {message.type} {rule}{error}")


@verbs.verb("test")
def test_alerts(target: DataTarget) -> None:
    """Test the alert rules and the webhook. Shows what each rule finds now; exit 1 if the test message fails."""
    from rowlock.health import alerts
    from rowlock.health.conditions import see
    from rowlock.health.sender import NotDelivered, check_webhook, deliver
    from rowlock.store.engine.ids import new_id

    async def try_out(app: Rowlock) -> dict[str, Any]:
        settings = app.settings.alerts
        check_webhook(settings)
        snapshot = await app.perform(alerts.look(settings.parsed_rules))
        seen = [
            {"rule": rule.name, "when": rule.when, "subject": subject, "value": found.value, "text": found.text}
            for rule in settings.parsed_rules
            for subject, found in see(rule, snapshot).items()
        ]
        found = {"rules": settings.parsed_rules, "seen": seen, "message": None, "error": None}
        if settings.webhook_url is None:
            return found
        text = "test message of `rowlock alerts test`; nothing is wrong"
        message = alerts.Message(new_id(), "alert.test", {"rule": "test", "subject": "", "text": text}, 0)
        try:
            await deliver(settings, message)
        except NotDelivered as error:
            return found | {"message": message.id, "error": str(error)}
        return found | {"message": message.id}

    found = target.look(try_out)
    target.report(found, *_lines(**found))
    if found["error"] is not None:
        if not target.as_json:
            complain(f"the test message was not delivered: {found['error']}")
        raise typer.Exit(FAILED)


def _lines(rules: list[Any], seen: list[dict[str, Any]], message: str | None, error: str | None) -> Iterator[str]:
    holds = "1 condition holds" if len(seen) == 1 else f"{len(seen)} conditions hold"
    yield f"{counted(len(rules), 'rule')}; {holds} now" if rules else NO_RULES
    yield from (f"  {one['rule']}: {one['text']}" for one in seen)
    if message is None:
        yield "no webhook: alerts go to the log only"
    elif error is None:
        yield f"test message {message} was delivered to alerts.webhook_url"
