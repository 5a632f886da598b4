"""`rowlock alerts`, and alerts of real processes when one of them is killed."""

import os
import re
import signal
from pathlib import Path

import pytest

from cli.command import Cli, Inside, wait_until

RULES = """
alerts:
  check_seconds: 0.2
  rules:
    nobody: {when: no_worker, for: 0, resolve_after: 0}
    backlog: {when: queued, above: 1, for: 0}
"""


def test_what_the_rules_see_is_shown_and_nothing_is_written(inside: Inside, folder: Path) -> None:
    (folder / "rowlock.yaml").write_text(RULES)
    for _ in range(2):
        inside.out("enqueue", "add", "a=1", "--app", "shop")
    found = inside.json("alerts", "test")
    assert [(seen["rule"], seen["subject"], seen["value"]) for seen in found["seen"]] == [
        ("nobody", "", 0),
        ("backlog", "default", 2),
    ]
    assert [rule["name"] for rule in found["rules"]] == ["nobody", "backlog"]
    text = inside.out("alerts", "test")
    assert "2 rules; 2 conditions hold now" in text
    (folder / "rowlock.yaml").write_text("alerts: {rules: {nobody: {when: no_worker}}}\n")
    assert "1 rule; 1 condition holds now" in inside.out("alerts", "test")
    assert "no webhook: alerts go to the log only" in text
    assert inside.json("alerts", "list") == {"alerts": [], "unsent": []}
    assert inside.out("alerts", "list") == "no alerts"


def test_a_webhook_that_cannot_be_reached_fails_the_test(inside: Inside, folder: Path) -> None:
    secret = "whsec_" + "QUJD" * 8
    more = f"  webhook_url: http://127.0.0.1:1/hook\n  webhook_secret: {secret}\n"
    (folder / "rowlock.yaml").write_text(RULES + more)
    assert "set alerts.webhook_private" in inside.error("alerts", "test", code=2)
    (folder / "rowlock.yaml").write_text(RULES + more + "  webhook_private: true\n")
    told = inside.run("alerts", "test", code=1)
    assert "was not delivered" in told.stderr
    assert secret not in told.stdout + told.stderr


def test_alerts_test_without_rules_names_the_setting(inside: Inside) -> None:
    assert "alerts.rules" in inside.out("alerts", "test")


@pytest.mark.parametrize("engine", ["postgres"])
def test_when_the_evaluating_process_is_killed_another_goes_on_and_tells_the_end(cli: Cli, here: Inside) -> None:
    (cli.folder / "rowlock.yaml").write_text(RULES)
    dispatchers = [cli.start("dispatch") for _ in range(2)]
    wait_until(lambda: any("alert firing: nobody" in one.log for one in dispatchers), "the alert")
    (firing,) = [one for one in dispatchers if "alert firing" in one.log]  # and the other said nothing
    (other,) = [one for one in dispatchers if one is not firing]
    assert firing.log.count("alert firing") == 1
    other.wait_for("Dispatcher started")
    wait_until(lambda: here.json("alerts", "list")["unsent"] == [], "the message to be marked as sent")
    listed = here.json("alerts", "list")
    assert [(alert["state"], alert["rule"]) for alert in listed["alerts"]] == [("firing", "nobody")]
    os.kill(firing.process.pid, signal.SIGKILL)
    worker = cli.start("worker", "--app", "shop")
    wait_until(lambda: "alert resolved: nobody" in other.log + worker.log, "the resolution")
    told = re.findall(r"alert (firing|resolved)", other.log + worker.log)
    assert told == ["resolved"]
    assert here.json("alerts", "list")["alerts"] == []
    assert worker.stop() == 0
    assert other.stop() == 0
