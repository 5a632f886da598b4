"""Explain why a job is not running and what it is waiting for, from the rows and by the rules of the claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rowlock.core.job import Job
from rowlock.core.sources.admission import Admission, Gate, admit, class_of
from rowlock.core.sources.policy import show_rate
from rowlock.core.states import State
from rowlock.store.batches import BatchRow, batch_of
from rowlock.store.engine import clock
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import LATEST, moment, names
from rowlock.store.read.counts import served_tasks
from rowlock.store.read.job_rows import job_of
from rowlock.store.sources.claim import gate_of
from rowlock.store.upkeep import bad_rows

JOBS_NAMED = 10
PLACES = 1_000  # up to this place in line, jobs ahead are counted exactly
BY_HAND = {"paused", "stopped", "breaker", "unserved", "unknown"}  # reasons that may need an operator
# An Explanation has the state of a job, so a batch's state is translated.
BATCH_STATES = {
    "queued": State.QUEUED,
    "running": State.RUNNING,
    "succeeded": State.SUCCEEDED,
    "failed": State.DEAD,
    "cancelled": State.CANCELLED,
}


class Obstacle(NamedTuple):
    """Why a job can't start now."""

    reason: str
    text: str
    until: datetime | None = None
    busy_with: tuple[str, ...] = ()
    named: str = ""  # the part of `text` that names other jobs and their workers


def obstacle_of_source(source: str, now: datetime) -> Steps[Obstacle | None]:
    """The reason why jobs of a source can't start now; None if they can."""
    rows = yield Call("read_gates", named=[(source,)])
    gate = gate_of(rows[0][2:])
    admission = admit(gate)
    if admission.room > 0:
        return None
    source_class = class_of(source)
    if admission.why == "saturated":
        running = yield Call("source_running", class_name=source_class, source=source, n=JOBS_NAMED)
        return _saturated(f"Its source {source!r}", gate.running or 0, gate.concurrency or 0, running)
    if admission.why == "class":
        running = yield Call("source_running", class_name=source_class, n=JOBS_NAMED)
        return _saturated(
            f"The class {source_class!r} of its source", gate.class_running or 0, gate.total or 0, running
        )
    if admission.why in ("disabled", "paused", "breaker"):
        pauses = yield Call("pauses", source=source, class_name=source_class)
        return _paused(source, pauses, broken=gate.opened) if pauses else None  # it has ended since the gate was read
    return _closed(source, gate, admission, now)


def _saturated(who: str, running: int, limit: int, rows: list[Row]) -> Obstacle:
    listed = ", ".join(f"{row.id} on {row.locked_by}" for row in rows[:3])
    more = f" and {running - 3} more" if running > 3 else ""
    named = f": {listed}{more}" if rows else ""
    text = f"{who} runs {running} of {limit} allowed jobs{named}."
    return Obstacle("saturated", text, busy_with=tuple(row.id for row in rows), named=named)


def _paused(source: str, pauses: list[Row], *, broken: bool) -> Obstacle:
    """All pauses that must end: the source's own, made by its breaker or an operator, and its class's."""
    reason, texts, ends = "stopped", list[str](), list[datetime]()
    for row in pauses:
        who, what = f"The class {row.name!r} of its source {source!r}", "is paused"
        if row.name == source:
            who = f"Its source {source!r}"
            if broken and row.enabled:
                reason, what = "breaker", "failed too often, and its breaker is open"
        if row.enabled:  # otherwise it lasts until somebody resumes it
            ends.append(moment(row.until))
            what += f" until {when(ends[-1])}"
        texts.append(f"{who} {what}; `rowlock sources resume {row.name}` ends that now.")
    return Obstacle(reason, " ".join(texts), max(ends) if len(ends) == len(pauses) else None)


def _closed(source: str, gate: Gate, admission: Admission, now: datetime) -> Obstacle:
    """The source is not paused, but its bucket is empty, or another job is its probe."""
    if admission.why == "probe":
        return Obstacle("probe", f"One job is trying out its source {source!r}; if that succeeds, all jobs can start.")
    # A row that another program wrote may have a wait beyond Python's calendar.
    until = now + timedelta(seconds=min(admission.wait or 0.0, (LATEST - now).total_seconds()))
    rate = f"Its source {source!r} is limited to {show_rate(gate.rate or 0.0)}"
    if gate.ahead:
        return Obstacle(
            "rate", f"{rate}; a clock that was ahead wrote its token bucket, which a worker corrects within a minute."
        )
    return Obstacle("rate", f"{rate}; the next token comes at {when(until)}.", until)


def when(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is not running.

    `reason` is one of:

    finished    it has its final state
    running     a worker is running it
    published   its request is in a Redis stream, and no worker has answered it
    cancelling  a worker is running it and was asked to stop
    lost        its worker has stopped sending heartbeats; the next sweep takes the job back
    expired     it did not start before its `expires_at`; the next sweep cancels it
    time        it is scheduled for a later time
    paused      its queue is paused
    saturated   its source, or the source's class, runs as many jobs as its limit allows
    rate        its source's token bucket is empty
    breaker     its source failed too often, and its breaker is open
    probe       another job is trying out its source
    stopped     its source is paused or disabled
    unserved    no live worker serves its queue
    unknown     no live worker of its queue knows its task
    line        other ready jobs come first, or take turns with it
    next        it comes first and waits for a free slot
    aside       an operation on it failed and would fail again; its row must be repaired
    batch       (for the id of a batch) the batch waits for its jobs
    """

    job_id: str
    state: State
    reason: str
    text: str
    also: tuple[str, ...] = ()  # further reasons, which would remain if the first one ended
    waits_until: datetime | None = None  # its start time, or the end of its lease
    place: int | None = None  # how many ready jobs come first
    place_exact: bool = True  # False: jobs of sources take turns, so more or fewer may come first
    held_by: str | None = None
    busy_with: tuple[str, ...] = ()  # the running jobs that fill up its source
    named: str = ""  # the part of `text` that names these jobs and their workers
    held_since: datetime | None = None
    error: str | None = None  # the last error


@operation(read=True)
def explain(job_id: str) -> Steps[Explanation | None]:
    """Explain why a job is not running and what it is waiting for. None if there is no such job or batch."""
    known = valid_id(job_id)
    rows = (yield Call("read_job", job_id=known)) if known else []
    if not rows:
        return (yield from explain_batch(known)) if known else None
    job = job_of(rows[0])
    if job.final:
        return _finished(job)
    if (aside := (yield from bad_rows.found(job.id))) is not None:
        return _set_aside(job, aside)
    now = yield from clock.now().start()
    if job.state is State.QUEUED and job.locked_by is not None:
        return _published(job)
    if job.state is State.RUNNING:
        return _running(job, now)
    paused = [row for row in (yield Call("paused_queues")) if row.name == job.queue]
    serving = [row for row in (yield Call("live_workers")) if job.queue in (names(row.queues) or ())]
    knowing = [row for row in serving if job.task in (names(row.tasks) or ())]
    if job.run_after > now and (yield Call("is_ready", job_id=job.id)):
        job = replace(job, run_after=now)  # a clock that was ahead made it claimable, and it remains claimable
    found = [
        *_too_early_or_late(job, now),
        *_unavailable(job, [moment(row.paused_at) for row in paused], serving, knowing),
    ]
    obstacle = (yield from obstacle_of_source(job.source, now)) if job.source is not None else None
    if found:
        reason, text = found[0]
        others = [*found[1:], *([(obstacle.reason, obstacle.text)] if obstacle else [])]
        also = tuple(other for other, _ in others)
        text = " ".join([text, *(more for other, more in others if other in BY_HAND)])
        return _explanation(job, reason, text, also=also, waits_until=job.run_after if job.run_after > now else None)
    if obstacle is not None:
        return _explanation(
            job,
            obstacle.reason,
            obstacle.text,
            waits_until=obstacle.until,
            busy_with=obstacle.busy_with,
            named=obstacle.named,
        )
    served = served_tasks(knowing)
    place = {"lane": sorted(served), "priority": job.priority, "id": job.id, "n": PLACES + 1}
    line = Call("line", **place) if job.source is None else Call("line_of_source", source=job.source, **place)
    (ahead,) = yield line
    return _in_line(job, knowing, int(ahead.same_line), int(ahead.other_lines), bool(ahead.turns))


def _explanation(job: Job, reason: str, text: str, **more: Any) -> Explanation:
    """An explanation that includes the error of the job's last attempt."""
    return Explanation(job.id, job.state, reason, text, **{"error": _error(job), **more})


def _published(job: Job) -> Explanation:
    since = f" since {job.locked_at.isoformat(timespec='seconds')}" if job.locked_at else ""
    text = f"Its request is in the stream job.requests{since}, and no worker has answered yet."
    return _explanation(job, "published", text, held_since=job.locked_at)


def explain_batch(batch_id: str) -> Steps[Explanation | None]:
    """Explain what a batch, and so its `on_end`, is waiting for."""
    rows = yield Call("read_batch", batch_id=batch_id)
    if not rows:
        return None
    batch = batch_of(rows[0])
    left = batch.total - batch.processed
    if batch.over:
        was = "was cancelled" if batch.state == "cancelled" else batch.state
        text = f"Batch {batch.name!r} {was} at {when(batch.finished_at or batch.created_at)}: {_ends(batch)}."
        return Explanation(batch.id, BATCH_STATES[batch.state], "finished", text, error=batch.last_error)
    unfinished = f"{left} of {_many(batch.total, 'job')} {'has' if left == 1 else 'have'} not finished"
    parts = [unfinished if left else "all of its jobs have finished"]
    if not batch.sealed:
        parts.append("more may be added until it is sealed")
    text = f"Batch {batch.name!r} is {batch.state}: {'; '.join(parts)}."
    return Explanation(batch.id, BATCH_STATES[batch.state], "batch", text, error=batch.last_error)


def _ends(batch: BatchRow) -> str:
    """The number of a batch's jobs, and how many of them ended in each way."""
    ways = ("succeeded", "dead", "cancelled", "expired")
    counted = [f"{number} {way}" for way in ways if (number := getattr(batch, way))]
    return f"of {_many(batch.total, 'job')} {', '.join(counted)}" if counted else "it had no jobs"


def _set_aside(job: Job, aside: bad_rows.Aside) -> Explanation:
    again = f"else it is tried again at {when(aside.again_at)}" if aside.again_at else "else it is not tried again"
    text = (
        f"It has been set aside since {when(aside.since)}, because {aside.doing} failed for it: {aside.error}."
        f" Repair its row, then delete its row in set_aside; {again}."
    )
    return _explanation(job, "aside", text, waits_until=aside.again_at, error=aside.error)


def _finished(job: Job) -> Explanation:
    at = when(job.finished_at or job.updated_at)
    because = f": {error}" if (error := _error(job)) else ""
    text = {
        State.SUCCEEDED: f"It succeeded at {at}.",
        State.DEAD: f"It died at {at} in attempt {job.attempt}{because}; a retry would run it again.",
        State.CANCELLED: f"It was cancelled at {at}{because}; a retry would run it again.",
    }[job.state]
    return _explanation(job, "finished", text)


def _running(job: Job, now: datetime) -> Explanation:
    since, until = job.locked_at or now, job.lease_expires_at or now
    runs = f"Worker {job.locked_by} has been running attempt {job.attempt} since {when(since)}"
    if until < now:
        reason = "lost"
        text = f"{runs}, but sends no heartbeats: its lease expired at {when(until)}, and the next sweep ends it."
    elif job.cancel_requested_at is not None:
        reason = "cancelling"
        text = f"{runs}, and was asked to stop at {when(job.cancel_requested_at)}."
    else:
        reason = "running"
        text = f"{runs}; its lease holds until {when(until)}, and each heartbeat extends it."
    return _explanation(job, reason, text, waits_until=until, held_by=job.locked_by, held_since=since)


def _too_early_or_late(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    if job.expires_at is not None and job.expires_at <= now:
        yield "expired", f"It did not start before {when(job.expires_at)}; the next sweep cancels it."
    if job.run_after > now:
        at = when(job.run_after)
        if job.state is State.RETRYABLE:
            ended = f"Attempt {job.attempt} ended with {_error(job) or 'no message'}"
            yield "time", f"{ended}; it is tried again at {at}."
        elif job.attempt > 0:
            yield "time", f"Attempt {job.attempt} released it; it runs again at {at}."
        else:
            yield "time", f"It is scheduled for {at}."


def _unavailable(
    job: Job, paused: Sequence[datetime], serving: Sequence[Row], knowing: Sequence[Row]
) -> Iterator[tuple[str, str]]:
    for since in paused:
        yield "paused", f"Its queue {job.queue!r} has been paused since {when(since)}; to go on, resume the queue."
    if not serving:
        yield "unserved", f"No live worker serves its queue {job.queue!r}; start one that does."
    elif not knowing:
        nobody = f"No live worker of queue {job.queue!r} ({len(serving)} serve it) knows its task {job.task!r}"
        yield "unknown", f"{nobody}; start one that has it registered."


def _in_line(job: Job, knowing: Sequence[Row], same: int, other: int, turns: bool) -> Explanation:
    """Explain a job's place in line. `same` counts jobs ahead of it in its own line: that of its source, or of plain
    jobs. `other` counts jobs of better priority, which their sources may not let start. With `turns`, more jobs of its
    priority take turns with it."""
    ahead = same + other
    place = min(ahead, PLACES)
    slots = sum(row.pool_size for row in knowing)
    by = f"{_many(slots, 'slot')} ({_many(len(knowing), 'live worker')} of queue {job.queue!r} can run it)"
    if place == 0:
        text = (
            f"Others of its priority take turns with it in line for {by}." if turns else f"It is next in line for {by}."
        )
    else:
        of = f" of its source {job.source!r}" if job.source is not None and not other else ""
        number = f"{place:,}+" if ahead > PLACES else f"up to {place:,}" if other else f"{place:,}"
        first = f"{number[:1].upper()}{number[1:]} ready {'job' if place == 1 else 'jobs'}{of}"
        come = f"{'comes' if place == 1 else 'come'} first{', and others take turns with it,' if turns else ''}"
        text = f"{first} {come} in line for {by}."
    exact = ahead <= PLACES and not other and not turns
    reason = "line" if place or turns else "next"
    return _explanation(job, reason, text, place=place, place_exact=exact)


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _error(job: Job) -> str | None:
    return ": ".join(part for part in (job.error_code, job.error_message) if part) or None
