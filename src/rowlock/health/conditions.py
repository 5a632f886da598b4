"""Alerts: where the condition of a rule holds, and when an alert fires, repeats and is resolved. Pure decisions.

A rule is about one or more subjects: a queue, a task, a source, a schedule, or the whole system (the empty subject).
Its condition must hold for a time before it fires (`hold`, written `for`), and must be gone for a time before it is
resolved (`resolve_after`), so that a number which moves around its limit makes one alert and not many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from rowlock.core.config.alert_rules import AlertRule
from rowlock.core.durations import spell

SOURCES_NAMED = 5
MOST_SUBJECTS = 20  # of one rule, the worst first: a thousand open breakers must not send a thousand messages

Told = Literal["alert.firing", "alert.repeated", "alert.resolved"]


# --- facts


class RunningJob(NamedTuple):
    """A job that runs, and for how long this attempt has."""

    job_id: str
    queue: str
    task: str
    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at, read from the database. Only what some rule needs is read."""

    ready: Mapping[str, int] = field(default_factory=dict)  # jobs that wait for a slot, by queue
    paused: frozenset[str] = frozenset()  # queues
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # closed sources that ready jobs need, by queue
    oldest: Mapping[str, float] = field(default_factory=dict)  # seconds that the first of them has waited, by queue
    running: tuple[RunningJob, ...] = ()  # the longest first
    dead: Mapping[float, Mapping[str, int]] = field(default_factory=dict)  # jobs by task, for each `within`
    workers: int = 0
    served: frozenset[str] = frozenset()  # queues that a live worker serves
    broken: Mapping[str, tuple[float, str | None]] = field(default_factory=dict)  # seconds and error, by source
    late: Mapping[str, float] = field(default_factory=dict)  # seconds, by schedule


class Seen(NamedTuple):
    """The condition of a rule holds for one subject: the number that exceeds its limit, and a sentence for people."""

    value: float
    text: str


def see(rule: AlertRule, facts: Facts) -> dict[str, Seen]:
    """The subjects for which the rule's condition holds now: the worst MOST_SUBJECTS of them."""
    found = dict(_LOOKS[rule.when](rule, facts))
    if rule.only:
        found = {subject: seen for subject, seen in found.items() if subject in rule.only}
    worst = sorted(found, key=lambda subject: -found[subject].value)[:MOST_SUBJECTS]
    return {subject: found[subject] for subject in worst}


_Looks = Iterable[tuple[str, Seen]]


def _running(rule: AlertRule, facts: Facts) -> _Looks:
    queues: dict[str, list[RunningJob]] = {}
    for job in facts.running:
        if job.seconds > rule.above:
            queues.setdefault(job.queue, []).append(job)
    for queue, jobs in queues.items():
        first = max(jobs, key=lambda job: job.seconds)
        text = (
            f"{_jobs(len(jobs))} of queue {queue!r} {'has' if len(jobs) == 1 else 'have'} been running for longer than"
            f" {spell(rule.above)}: {first.job_id}"
            f" ({first.task}) for {spell(first.seconds)} on worker {first.worker}; the worker may hang"
        )
        yield queue, Seen(first.seconds, text)


def _queued(rule: AlertRule, facts: Facts) -> _Looks:
    for queue, number in facts.ready.items():
        if number > rule.above:
            verb = "is" if number == 1 else "are"
            text = f"{_jobs(number)} {verb} ready in queue {queue!r}, more than {rule.above:g}; {_remedy(queue, facts)}"
            yield queue, Seen(number, text)


def _oldest(rule: AlertRule, facts: Facts) -> _Looks:
    for queue, age in facts.oldest.items():
        if age > rule.above:
            what = f"the oldest ready job of queue {queue!r} has waited for {spell(age)}"
            text = f"{what}, longer than {spell(rule.above)}"
            hindrance = _hindrance(queue, facts)
            yield queue, Seen(age, f"{text}; {hindrance}" if hindrance else text)


def _dead(rule: AlertRule, facts: Facts) -> _Looks:
    for task, number in facts.dead.get(rule.within, {}).items():
        if number > rule.above:
            text = f"{_jobs(number)} of task {task!r} became dead in the last {spell(rule.within)}"
            yield task, Seen(number, f"{text}; see: rowlock jobs list --state dead")


def _no_worker(rule: AlertRule, facts: Facts) -> _Looks:
    if not rule.only and not facts.workers:
        yield "", Seen(0, "no worker is alive; jobs wait until one is started")
    for queue in rule.only:
        if queue not in facts.served:
            yield queue, Seen(0, f"no live worker serves queue {queue!r}; its jobs wait until one is started")


def _broken(rule: AlertRule, facts: Facts) -> _Looks:
    for source, (seconds, error) in facts.broken.items():
        because = f": {_one_line(error)}" if error else ""
        yield source, Seen(seconds, f"the breaker of source {source!r} has been open for {spell(seconds)}{because}")


def _missed(rule: AlertRule, facts: Facts) -> _Looks:
    for schedule, late in facts.late.items():
        if late > rule.above:
            text = f"a tick of schedule {schedule!r} has been due for {spell(late)}; is a dispatcher running?"
            yield schedule, Seen(late, text)


_LOOKS: dict[str, Callable[[AlertRule, Facts], _Looks]] = {
    "running_seconds": _running,
    "queued": _queued,
    "oldest_seconds": _oldest,
    "dead": _dead,
    "no_worker": _no_worker,
    "breaker_open": _broken,
    "missed_ticks": _missed,
}


def _one_line(text: str) -> str:
    """An error as one short line without control characters: it comes from outside."""
    return "".join(char if char.isprintable() else " " for char in text)[:200]


def _jobs(number: int) -> str:
    return f"{number:,} job" if number == 1 else f"{number:,} jobs"


def _remedy(queue: str, facts: Facts) -> str:
    return _hindrance(queue, facts) or "more workers are needed"


def _hindrance(queue: str, facts: Facts) -> str | None:
    """Why ready jobs of a queue would not start if there were more workers."""
    if queue in facts.paused:
        return f"the queue is paused; to go on: rowlock queues resume {queue}"
    if not (held := facts.held.get(queue)):
        return None
    named = ", ".join(held[:SOURCES_NAMED])
    more = f" and {len(held) - SOURCES_NAMED} more" if len(held) > SOURCES_NAMED else ""
    which = "a source that is" if len(held) == 1 else "sources that are"
    return f"jobs wait for {which} paused or failing ({named}{more}), and more workers would not start these"


# --- what follows


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


def decide(rule: AlertRule, subject: str, alert: Alert | None, seen: Seen | None, now: datetime) -> Decision:
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
