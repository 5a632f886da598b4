"""`rowlock alerts`: what the alert rules of the config have noticed, and whether a message would arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rowlock.cli.failures import FAILED, complain
from rowlock.cli.options import grouped_options
from rowlock.cli.output import printable, record, show, show_json
from rowlock.cli.target import DataTarget

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.core.alerts import Alert
    from rowlock.store.alerts import Message

verbs = typer.Typer(help="Look at alerts, test their rules.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("state", "rule", "subject", "fired_at", "repeats", "text")
UNSENT_SHOWN = 100


@verbs.command("list")
@grouped_options
def list_alerts(target: DataTarget) -> None:
    """List alerts. Those that are pending, firing or resolving, and messages that have not been delivered."""
    from rowlock.store import alerts

    async def read(app: Rowlock) -> tuple[list[Alert], list[Message]]:
        store = await app.store()
        return await store.run(alerts.alerts()), await store.run(alerts.unsent(UNSENT_SHOWN))

    found, unsent = target.run(read)
    rows = [{"state": alert.state, **record(alert)} for alert in found]
    if target.as_json:
        show_json({"alerts": rows, "unsent": [record(message) for message in unsent]})
        return
    show(rows, COLUMNS, as_json=False, empty="no alerts")
    for message in unsent:
        error = f": {printable(message.last_error)}" if message.last_error else ""
        print(f"not delivered after {message.attempts} attempts: {message.type} {message.body.get('rule')}{error}")


@verbs.command("test")
@grouped_options
def test_alerts(target: DataTarget) -> None:
    """Test the alert rules and the webhook. Shows what each rule sees now; exit 1 if the test message fails."""
    from rowlock.core.alerts import see
    from rowlock.store import alerts
    from rowlock.store.ids import new_id
    from rowlock.worker.alerts import NotDelivered, check_webhook, deliver

    async def try_out(app: Rowlock) -> tuple[list[dict[str, Any]], str | None, str | None]:
        settings = app.settings.alerts
        check_webhook(settings)
        facts = await (await app.store()).run(alerts.facts(settings.parsed_rules))
        seen = [
            {"rule": rule.name, "when": rule.when, "subject": subject, "value": found.value, "text": found.text}
            for rule in settings.parsed_rules
            for subject, found in see(rule, facts).items()
        ]
        if settings.webhook_url is None:
            return seen, None, None
        text = "a test message of rowlock alerts test; nothing is wrong"
        message = alerts.Message(new_id(), "alert.test", {"rule": "test", "subject": "", "text": text}, 0)
        try:
            await deliver(settings, message)
        except NotDelivered as error:
            return seen, message.id, str(error)
        return seen, message.id, None

    app = target.open()
    rules = app.settings.alerts.parsed_rules
    seen, sent, error = target.run(try_out)
    if target.as_json:
        show_json({"rules": [record(rule) for rule in rules], "seen": seen, "message": sent, "error": error})
    else:
        _show(len(rules), seen, sent, error)
    if error is not None:
        raise typer.Exit(FAILED)


def _show(rules: int, seen: list[dict[str, Any]], sent: str | None, error: str | None) -> None:
    if not rules:
        print("no rules: add some under alerts.rules in the config")
    else:
        print(f"{rules} rules; {len(seen)} conditions hold now")
    for one in seen:
        print(f"  {one['rule']}: {printable(one['text'])}")
    if error is not None:
        complain(f"the test message was not delivered: {error}")
    elif sent is not None:
        print(f"test message {sent} was delivered to alerts.webhook_url")
    else:
        print("no webhook: alerts go to the log only")
