"""Finds what is wrong now. Pure functions of a snapshot, for alerts, the dashboard's first page, `rowlock stats`,
`top`, `doctor` and the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rowlock.core.config.alert_rules import KINDS, AlertRule
from rowlock.core.times import spell
from rowlock.store.read.snapshot import RunningJob, Snapshot

# A queue is behind if its oldest ready job has been due for longer than this. If the queue is paused or unserved, that
# is reported instead. Alert rules of the kind `oldest_seconds` have their own limit.
BEHIND_SECONDS = 60.0
STUCK_SECONDS = 60.0  # a few sweeps: after these, a worker should have reclaimed a job whose lease has expired
SOURCES_NAMED = 5
MOST_SUBJECTS = 20  # of one rule, worst first, so that a thousand open breakers don't send a thousand messages


class ConditionKind(NamedTuple):
    """How serious a kind of condition is (warn or fail), and where to look."""

    level: str
    check: str  # of `rowlock doctor`
    view: str  # of the dashboard
    rule: str | None = None  # the kind of alert rule that reports it
    needs_limit: bool = False  # counts as wrong only if an alert rule sets a limit


CONDITIONS = {
    "paused": ConditionKind("warn", "queues", "queues"),
    "unserved": ConditionKind("warn", "queues", "queues", "no_worker"),
    "behind": ConditionKind("warn", "queues", "queues", "oldest_seconds"),
    "long_queue": ConditionKind("warn", "queues", "queues", "queued", needs_limit=True),
    "long_run": ConditionKind("warn", "jobs", "jobs", "running_seconds", needs_limit=True),
    "no_workers": ConditionKind("warn", "workers", "workers", "no_worker"),
    "silent_worker": ConditionKind("warn", "worker", "workers"),
    "breaker": ConditionKind("warn", "sources", "sources", "breaker_open"),
    "source_paused": ConditionKind("warn", "sources", "sources"),
    "late": ConditionKind("fail", "schedules", "schedules", "missed_ticks"),
    "schedule": ConditionKind("fail", "schedules", "schedules"),
    "unknown_task": ConditionKind("fail", "tasks", "jobs"),
    "dead": ConditionKind("warn", "tasks", "failures", "dead"),
    "stuck": ConditionKind("fail", "leases", "jobs"),
    "set_aside": ConditionKind("fail", "rows", "jobs"),
    "never_due": ConditionKind("warn", "rows", "jobs"),
}


class Condition(NamedTuple):
    """Something that is wrong: its kind, the name of what it affects (empty: the whole system), the value that exceeds
    its limit, a sentence for people, and what to do."""

    kind: str
    name: str
    value: float
    text: str
    do: str = ""

    @property
    def short(self) -> str:
        """The sentence without reasons and hints."""
        return self.text.partition("; ")[0]


def conditions(found: Snapshot) -> list[Condition]:
    """Everything that is wrong, whatever rules are configured."""
    return [
        *_queues(found),
        *_workers(found),
        *_broken(_default_rule("breaker_open"), found),
        *_closed(found),
        *_missed(_default_rule("missed_ticks"), found),
        *_schedules(found),
        *_unknown(found),
        *_dead(_default_rule("dead"), found),
        *_stuck(found),
        *_rows(found),
    ]


def counted(found: Snapshot) -> dict[str, int]:
    """The number of conditions of each kind, even if it is 0, without the kinds that need a rule's limit."""
    number = Counter(one.kind for one in conditions(found))
    return {name: number[name] for name, kind in CONDITIONS.items() if not kind.needs_limit}


def see(rule: AlertRule, found: Snapshot) -> dict[str, Condition]:
    """The conditions that exceed the limit of a rule, by subject: the worst MOST_SUBJECTS."""
    seen = [one for one in _CHECKS[rule.when](rule, found) if not rule.only or one.name in rule.only]
    return {one.name: one for one in sorted(seen, key=lambda one: -one.value)[:MOST_SUBJECTS]}


def _default_rule(when: str) -> AlertRule:
    """The rule of a kind with its default limit, which needs no config."""
    return AlertRule(when, when, KINDS[when].above or 0.0)


# --- queues and workers


def _queues(found: Snapshot) -> Iterator[Condition]:
    """One condition for each queue in trouble. A queue that is paused or unserved isn't also reported as behind."""
    behind = {one.name: one for one in _oldest(AlertRule("", "oldest_seconds", BEHIND_SECONDS), found)}
    served = found.served
    for queue in found.queues:
        if since := found.paused.get(queue.name):
            text = f"queue {queue.name!r} has been paused since {since:%Y-%m-%d %H:%M} UTC"
            yield Condition("paused", queue.name, queue.ready, text, f"to resume: rowlock queues resume {queue.name}")
        elif queue.name not in served and queue.queued + queue.retryable:
            yield from _no_worker(AlertRule("", "no_worker", only=(queue.name,)), found)
        elif queue.name in behind:
            yield behind[queue.name]


def _queued(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    for queue in found.queues:
        if queue.ready > rule.above:
            verb = "is" if queue.ready == 1 else "are"
            text = f"{_counted(queue.ready, 'job')} {verb} ready in queue {queue.name!r}, more than {rule.above:g}"
            remedy = _blocker(queue.name, found) or "more workers are needed"
            yield Condition("long_queue", queue.name, queue.ready, f"{text}; {remedy}")


def _oldest(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    """The queues that are behind: their oldest ready job has waited too long."""
    for queue in found.queues:
        age = queue.oldest_ready_seconds or 0.0
        if age > rule.above:
            what = f"the oldest ready job of queue {queue.name!r} has waited for {spell(age)}"
            blocker = _blocker(queue.name, found)
            text = f"{what}, longer than {spell(rule.above)}{f'; {blocker}' if blocker else ''}"
            do = f"see why: rowlock jobs list --queue {queue.name} --state queued, and rowlock jobs explain ID"
            yield Condition("behind", queue.name, age, text, do)


def _blocker(queue: str, found: Snapshot) -> str | None:
    """Why more workers would not start the ready jobs of a queue."""
    if queue in found.paused:
        return f"the queue is paused; to resume: rowlock queues resume {queue}"
    if not (held := found.held.get(queue)):
        return None
    named = ", ".join(held[:SOURCES_NAMED])
    more = f" and {len(held) - SOURCES_NAMED} more" if len(held) > SOURCES_NAMED else ""
    which = "a source that is" if len(held) == 1 else "sources that are"
    return f"jobs wait for {which} paused or failing ({named}{more}), and more workers would not start these"


def _no_worker(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    if not rule.only and not found.workers:
        text = "no worker is alive; jobs wait until one is started"
        yield Condition("no_workers", "", 0, text, "start one: rowlock worker, or rowlock up")
    served = found.served if rule.only else ()
    for queue in rule.only:
        if queue not in served:
            text = f"no live worker serves queue {queue!r}; its jobs wait until one is started"
            yield Condition("unserved", queue, 0, text, f"start one: rowlock worker --queues {queue}")


def _workers(found: Snapshot) -> Iterator[Condition]:
    yield from _no_worker(_default_rule("no_worker"), found)
    for worker in found.listed:
        if not worker.alive:
            ago = max(0.0, (found.at - worker.seen_at).total_seconds())
            text = f"worker {worker.id!r} has sent no heartbeat for {spell(ago)}; any live worker takes its jobs back"
            do = f"look for its process, pid {worker.pid} on {worker.hostname}"
            yield Condition("silent_worker", worker.id, ago, text, do)


def _unknown(found: Snapshot) -> Iterator[Condition]:
    served = found.served
    for queue, task, waiting in found.unknown:
        if queue in served:
            text = f"no live worker of queue {queue!r} has the task {task!r}; jobs waiting: {waiting:,}"
            do = f"start a worker with code that has it, or: rowlock jobs cancel --task {task}"
            yield Condition("unknown_task", task, waiting, text, do)


# --- jobs


def _running(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    queues: dict[str, list[RunningJob]] = {}
    for job in found.running:
        if job.seconds > rule.above:
            queues.setdefault(job.queue, []).append(job)
    for queue, jobs in queues.items():
        first = max(jobs, key=lambda job: job.seconds)
        text = (
            f"{_counted(len(jobs), 'job')} of queue {queue!r} {'has' if len(jobs) == 1 else 'have'} been running"
            f" for longer than {spell(rule.above)}: {first.job_id}"
            f" ({first.task}) for {spell(first.seconds)} on worker {first.worker}; the worker may hang"
        )
        yield Condition("long_run", queue, first.seconds, text)


def _dead(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    for task, number in found.dead.get(rule.within, {}).items():
        if number > rule.above:
            text = f"{_counted(number, 'job')} of task {task!r} became dead in the last {spell(rule.within)}"
            do = f"see why: rowlock jobs list --state dead --task {task}"
            yield Condition("dead", task, number, f"{text}; see: rowlock jobs list --state dead", do)


def _stuck(found: Snapshot) -> Iterator[Condition]:
    overdue = [job.overdue for job in found.running if job.overdue is not None and job.overdue > STUCK_SECONDS]
    if overdue:
        leases = _counted(len(overdue), "lease")
        text = f"{leases} expired more than {spell(STUCK_SECONDS)} ago, and no worker has reclaimed the jobs"
        yield Condition("stuck", "", max(overdue), text, "start a worker: any worker takes such jobs back")


def _rows(found: Snapshot) -> Iterator[Condition]:
    for one in found.set_aside:
        text = f"{one.id} is set aside: {one.doing} failed for it, {_one_line(one.error)}"
        again = f" (workers try again by themselves at {one.again_at:%H:%M} UTC)" if one.again_at else ""
        do = f"correct the row of {one.id}, then delete its entry in the table set_aside{again}"
        yield Condition("set_aside", one.id, one.times, text, do)
    for job_id, task in found.never_due:
        do = f"set its run_after, or: rowlock jobs cancel {job_id}"
        yield Condition("never_due", job_id, 0, f"{job_id} ({task}) waits for a time after 2199", do)


# --- sources and schedules


def _broken(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    for source in found.sources:
        if source.seconds is not None:
            because = f": {_one_line(source.error)}" if source.error else ""
            text = f"the breaker of source {source.name!r} has been open for {spell(source.seconds)}{because}"
            do = f"if it works again: rowlock sources resume {source.name}"
            yield Condition("breaker", source.name, source.seconds, text, do)


def _closed(found: Snapshot) -> Iterator[Condition]:
    for source in found.sources:
        if source.seconds is None:
            text = f"source {source.name!r} is {source.state}"
            yield Condition("source_paused", source.name, 0, text, f"to resume: rowlock sources resume {source.name}")


def _missed(rule: AlertRule, found: Snapshot) -> Iterator[Condition]:
    for schedule in found.schedules:
        if schedule.late is not None and schedule.late > rule.above:
            text = f"a tick of schedule {schedule.id!r} has been due for {spell(schedule.late)}"
            do = "start a dispatcher: rowlock dispatch, or rowlock up"
            yield Condition("late", schedule.id, schedule.late, f"{text}; is a dispatcher running?", do)


def _schedules(found: Snapshot) -> Iterator[Condition]:
    for schedule in found.schedules:
        if schedule.problem is not None:
            text = f"schedule {schedule.id!r} does not fire: {_one_line(schedule.problem)}"
            yield Condition("schedule", schedule.id, 0, text, "correct its definition where it is declared")


def _one_line(text: str) -> str:
    """An error from outside as one short line without control characters."""
    return "".join(char if char.isprintable() else " " for char in text)[:200]


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


_CHECKS: dict[str, Callable[[AlertRule, Snapshot], Iterable[Condition]]] = {
    "running_seconds": _running,
    "queued": _queued,
    "oldest_seconds": _oldest,
    "dead": _dead,
    "no_worker": _no_worker,
    "breaker_open": _broken,
    "missed_ticks": _missed,
}
