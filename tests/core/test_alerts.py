"""Alert rules: which configs are taken, what each rule sees, and when something is told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.core.config import Settings, load_settings
from rowlock.core.config.alert_rules import KINDS, AlertRule, parse_rules
from rowlock.core.errors import ConfigError
from rowlock.health.alerts import Alert, decide
from rowlock.health.conditions import MOST_SUBJECTS, Condition, see
from rowlock.store.read.snapshot import ClosedSource, RunningJob, Snapshot, TroubledSchedule
from support.each import each
from support.rigs.snapshots import snapshot, worker

START = datetime(2026, 1, 1, tzinfo=UTC)
SEEN = Condition("long_queue", "q", 12, "twelve")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def config(text: str, **env: str) -> Settings:
    return load_settings(file_text=text, file_name="rowlock.yaml", env=env, flags={})


# --- configs


def test_the_two_alerts_of_the_sticker_document_are_two_lines_of_config() -> None:
    settings = config(
        "alerts:\n  rules:\n    hanging: {when: running_seconds, above: 5m}\n    backlog: {when: queued, above: 10}\n"
    )
    hanging, backlog = settings.alerts.parsed_rules
    assert (hanging.when, hanging.above, hanging.hold) == ("running_seconds", 300.0, 0.0)
    assert (backlog.when, backlog.above, backlog.hold) == ("queued", 10.0, 60.0)


def test_every_kind_of_rule_has_usable_defaults() -> None:
    rules = parse_rules({kind: {"when": kind} for kind in KINDS}, repeat=7200)
    assert [rule.when for rule in rules] == list(KINDS)
    assert {rule.repeat for rule in rules} == {7200.0}


@each(
    "rule, said",
    [
        ("{when: queue, above: 10}", "when must be one of running_seconds"),
        ("{above: 10}", "when must be one of"),
        ("{when: queued, abov: 10}", "did you mean above"),
        ("{when: queued, above: 5m}", "above must be a number"),
        ("{when: queued, above: true}", "above must be a number"),
        ("{when: running_seconds, above: long}", "above must be a time"),
        ("{when: no_worker, above: 3}", "no such key for no_worker"),
        ("{when: queued, within: 3}", "no such key for queued"),
        ("{when: dead, for: -1}", "for must be a time"),
        ("{when: dead, repeat: 0}", "at least 1 s"),
        ("{when: queued, only: 3}", "only must be queues"),
        ("{when: breaker_open, only: [api, '']}", "only must be sources"),
        ("[1]", "must have settings"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_name_and_line(rule: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(f"alerts:\n  rules:\n    mine: {rule}\n")
    message = str(caught.value)
    assert said in message
    assert "rule 'mine'" in message
    assert "alerts.rules" in message
    assert "rowlock.yaml:2" in message
    assert "\n" not in message


@each(
    "lines, said",
    [
        ("rules: [1]", "must be a mapping of rules"),
        ("webhook_url: ftp://x", "must be an http or https URL"),
        ("webhook_url: https://hooks.example/T0PSECRET", "must be set where webhook_url is"),
        ("webhook_secret: whsec_short", "base64 of 24 bytes"),
        ("webhook_secret: " + "A" * 32, "must be whsec_"),
        ("check_seconds: 0", "greater than 0"),
        ("chek_seconds: 5", "did you mean alerts.check_seconds"),
    ],
)
def test_a_wrong_setting_is_refused_and_no_secret_is_shown(lines: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(f"alerts:\n  {lines}\n")
    assert said in str(caught.value)
    assert "T0PSECRET" not in str(caught.value)
    assert "whsec_short" not in str(caught.value)


def test_no_error_and_no_repr_shows_the_webhook_url_or_its_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        config("alerts: {webhook_url: 'ftp://hooks.example/T0PSECRET'}\n")
    assert "T0PSECRET" not in str(caught.value)
    secret = "whsec_" + "A" * 32
    settings = config(f"alerts: {{webhook_url: 'https://hooks.example/T0PSECRET', webhook_secret: {secret}}}\n")
    assert "T0PSECRET" not in repr(settings)
    assert secret not in repr(settings)


def test_rules_may_come_from_the_environment() -> None:
    found = config("{}", ROWLOCK_ALERTS__RULES='{"nobody": {"when": "no_worker", "only": "links"}}')
    assert found.alerts.parsed_rules == (AlertRule("nobody", "no_worker", hold=60.0, only=("links",)),)


# --- what is seen


def subjects(when: str, facts: Snapshot, **settings: Any) -> dict[str, float]:
    (rule,) = parse_rules({"mine": {"when": when, **settings}})
    return {subject: seen.value for subject, seen in see(rule, facts).items()}


DEAD = {600.0: {"t": 1, "u": 3}, 60.0: {"t": 1}}
RUNNING = tuple(RunningJob(f"job-{n}", f"q{n % 2}", "t", "w", seconds) for n, seconds in enumerate([900, 400, 300]))
TROUBLED = (TroubledSchedule("nightly", 61.0), TroubledSchedule("hourly", 60.0))


def broken(name: str, seconds: float, error: str | None = None) -> ClosedSource:
    return ClosedSource(name, "broken", seconds, error)


@each(
    "when, facts, settings, seen",
    [
        ("running_seconds", {"running": RUNNING}, {}, {"q0": 900, "q1": 400}),
        ("queued", {"ready": {"a": 11, "b": 10}}, {}, {"a": 11}),
        ("oldest_seconds", {"oldest": {"a": 601, "b": 600}}, {}, {"a": 601}),
        ("dead", {"dead": DEAD}, {}, {"t": 1, "u": 3}),
        ("dead", {"dead": DEAD}, {"above": 2}, {"u": 3}),
        ("dead", {"dead": DEAD}, {"within": 60}, {"t": 1}),
        ("breaker_open", {"sources": (broken("api:x", 5.0, "no\nroute"),)}, {}, {"api:x": 5.0}),
        ("missed_ticks", {"schedules": TROUBLED}, {}, {"nightly": 61.0}),
    ],
)
def test_an_alert_rule_sees_what_is_beyond_its_limit_and_nothing_at_it(
    when: str, facts: dict[str, Any], settings: dict[str, Any], seen: dict[str, float]
) -> None:
    assert subjects(when, snapshot(**facts), **settings) == seen


def text_of(when: str, facts: Snapshot, **settings: Any) -> str:
    (rule,) = parse_rules({"mine": {"when": when, **settings}})
    return "".join(seen.text for seen in see(rule, facts).values())


@each(
    "number, queued, dead, running",
    [
        (0, "", "", ""),
        (1, "1 job is ready in queue 'q'", "1 job of task 't' became dead", "1 job of queue 'q' has been running for"),
        (2, "2 jobs are ready in queue 'q'", "2 jobs of task 't' became dead", "2 jobs of queue 'q' have been running"),
    ],
)
def test_the_text_of_an_alert_about_one_or_more_jobs_is_a_sentence(
    number: int, queued: str, dead: str, running: str
) -> None:
    assert text_of("queued", snapshot(ready={"q": number}), above=0).startswith(queued)
    assert text_of("dead", snapshot(dead={600.0: {"t": number}})).startswith(dead)
    jobs = tuple(RunningJob(f"job-{n}", "q", "t", "w", 900.0) for n in range(number))
    assert text_of("running_seconds", snapshot(running=jobs)).startswith(running)


MANY = {"q": 11}
SIX = tuple(f"api:{n}" for n in range(6))
RESUME = "the queue is paused; to go on: rowlock queues resume q"


@each(
    "when, facts, advice",
    [
        ("queued", snapshot(ready=MANY), "; more workers are needed"),
        ("queued", snapshot(MANY, paused=["q"]), RESUME),
        ("oldest_seconds", snapshot(oldest={"q": 9999.0}, paused=["q"]), f"; {RESUME}"),
        (
            "queued",
            snapshot(ready=MANY, held={"q": ("api:x",)}),
            "wait for a source that is paused or failing (api:x), and more workers would not start these",
        ),
        (
            "queued",
            snapshot(ready=MANY, held={"q": SIX}),
            "wait for sources that are paused or failing (api:0, api:1, api:2, api:3, api:4 and 1 more), and more"
            " workers would not start these",
        ),
        (
            "queued",
            snapshot(MANY, held={"other": ("api:x",)}, sources=(broken("api:x", 5.0),)),
            "; more workers are needed",
        ),
    ],
    ids=["busy", "paused", "old and paused", "one closed source", "six closed sources", "closed source elsewhere"],
)
def test_more_workers_are_advised_unless_the_queue_is_paused_or_its_sources_are_closed(
    when: str, facts: Snapshot, advice: str
) -> None:
    assert text_of(when, facts).endswith(advice)


def test_a_rule_with_names_sees_these_alone() -> None:
    assert subjects("queued", snapshot(ready={"a": 99, "b": 99}), only="b") == {"b": 99}
    assert subjects("breaker_open", snapshot(sources=(broken("api:x", 1), broken("api:y", 1))), only=["api:y"]) == {
        "api:y": 1
    }


def test_no_worker_is_about_all_workers_or_about_the_queues_that_are_named() -> None:
    assert subjects("no_worker", snapshot()) == {"": 0}
    assert subjects("no_worker", snapshot(listed=(worker("a"),))) == {}
    assert subjects("no_worker", snapshot(listed=(worker("a"),)), only=["a", "b"]) == {"b": 0}


def test_a_thousand_subjects_become_the_worst_twenty() -> None:
    found = subjects("queued", snapshot(ready={f"q{n}": n for n in range(1000)}))
    assert len(found) == MOST_SUBJECTS
    assert min(found.values()) == 980


def test_the_text_of_an_outside_error_is_one_line_without_control_characters() -> None:
    (rule,) = parse_rules({"mine": {"when": "breaker_open"}})
    seen = see(rule, snapshot(sources=(broken("api:x", 5.0, "a\n\x1b[31mb" + "c" * 500),)))
    assert seen["api:x"].text.isprintable()
    assert len(seen["api:x"].text) < 300


# --- what follows

RULE = AlertRule("mine", "queued", above=10, hold=60, resolve_after=120, repeat=600)


def play(rule: AlertRule, looks: list[tuple[float, bool]]) -> tuple[list[tuple[float, str]], Alert | None]:
    """Each look is (second, whether the condition holds). Returns what was told, and the alert at the end."""
    alert, told = None, []
    for second, holds in looks:
        alert, said = decide(rule, "q", alert, SEEN if holds else None, at(second))
        if said is not None:
            told.append((second, said.removeprefix("alert.")))
    return told, alert


def test_an_alert_fires_once_its_condition_has_held_for_long_enough() -> None:
    assert play(RULE, [(0, True), (30, True), (59, True), (60, True), (75, True)])[0] == [(60, "firing")]
    assert play(AlertRule("mine", "queued"), [(0, True), (5, True)])[0] == [(0, "firing")]


def test_a_condition_that_ends_before_its_hold_time_sends_no_alert() -> None:
    told, alert = play(RULE, [(0, True), (50, True), (55, False), (61, True), (120, True)])
    assert told == []
    assert alert is not None
    assert alert.state == "pending"
    assert alert.true_since == at(61)


def test_an_alert_is_resolved_once_its_condition_has_been_gone_for_long_enough() -> None:
    told, alert = play(RULE, [(0, True), (60, True), (70, False), (189, False), (190, False), (200, False)])
    assert told == [(60, "firing"), (190, "resolved")]
    assert alert is None


def test_a_number_that_moves_around_its_limit_makes_one_alert() -> None:
    looks = [(0, True), (60, True), *((60 + 15 * n, n % 3 > 0) for n in range(1, 30)), (600, False), (720, False)]
    assert play(RULE, looks)[0] == [(60, "firing"), (720, "resolved")]


def test_an_alert_is_repeated_at_most_once_in_its_time() -> None:
    told, alert = play(RULE, [(0, True), *((60 + 15 * n, True) for n in range(100))])
    assert told == [(60, "firing"), (660, "repeated"), (1260, "repeated")]
    assert alert is not None
    assert alert.repeats == 2


def test_moments_that_a_clock_ahead_has_written_count_as_the_present() -> None:
    ahead = Alert("mine", "q", 1, "x", true_since=at(9000), fired_at=at(9000), told_at=at(9000), false_since=at(9000))
    told: list[str] = []
    alert: Alert | None = ahead
    for second in (0, 60, 120):
        alert, said = decide(RULE, "q", alert, None, at(second))
        told += [said] if said else []
    assert told == ["alert.resolved"]


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=60))
def test_firing_and_resolved_take_turns_whatever_happens(looks: list[tuple[int, bool]]) -> None:
    second, timed = 0, []
    for step, holds in looks:
        second += step
        timed.append((second, holds))
    told, alert = play(RULE, timed)
    turns = [said for _, said in told if said != "repeated"]
    assert turns == ["firing", "resolved"] * (len(turns) // 2) + ["firing"] * (len(turns) % 2)
    assert (alert is not None and alert.fired_at is not None) == (len(turns) % 2 == 1)
