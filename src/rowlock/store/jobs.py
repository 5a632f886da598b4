"""Every write to a job: enqueue, claim, settle, beat, progress, reclaim, promote, expire, cancel, retry.

Each function builds an operation for `Store.run`. Lock order everywhere: jobs by id, then batches, then sources.
Jobs that have a source are claimed in turns.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from rowlock.core.errors import LeaseLost, RowlockError, StoreError
from rowlock.core.job import Claimed, NewJob, Settlement
from rowlock.core.outcome import Lost
from rowlock.core.policy import DAY, Transition, decide
from rowlock.core.states import FINAL, Outcome, State
from rowlock.store import batches, health, keys
from rowlock.store.adding import NewRow, add, add_rows, ring
from rowlock.store.follow_ups import follow_ups
from rowlock.store.operation import Call, Ring, Row, Steps, operation
from rowlock.store.times import moment

Answer = Literal["applied", "duplicate", "lost"]
CancelAnswer = Literal["cancelled", "cancelling", "final", "missing"]

CANCELLED = Transition(State.CANCELLED, Outcome.CANCELLED, error_code="CANCELLED")
NO_ID = "00000000-0000-0000-0000-000000000000"
_PRIORITY_AND_ID = attrgetter("priority", "id")


class Keep(NamedTuple):
    """How long finished jobs are kept, in seconds, unless their task says otherwise."""

    succeeded: float = 7 * DAY
    failed: float = 30 * DAY

    def of(self, state: State) -> float:
        """The retention of one final state."""
        return self.succeeded if state is State.SUCCEEDED else self.failed


class Reclaimed(NamedTuple):
    """A job whose lease ran out, and what became of it."""

    job: Claimed
    transition: Transition


class Lane(NamedTuple):
    """A range of the claim index: one task in one queue, from (low_priority, low_id) exclusive up to high_priority.
    A claim looks at the first `take` of it; if it brings that many, there may be more."""

    queue: str
    task: str
    low_priority: int = -101
    low_id: str = NO_ID
    high_priority: int = 101
    take: int = 1_000_000


def _first(row: tuple[Any, ...]) -> Any:
    return row[0]


@operation(single=True, hot=True, size=lambda rows, new: len(rows))
def enqueue(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options: no key, no batch."""
    yield from add(rows, new)


@operation()
def enqueue_rows(
    rows: Sequence[NewRow], new: NewJob, own: tuple[str, str] | None = None, under: tuple[str, str] | None = None
) -> Steps[dict[str, str]]:
    """Insert jobs with keys, of a batch, or of different sources; answers the job that holds each key, an older one
    perhaps. Of two rows with the same key the first is it. `own` is the lease of the attempt that adds to its own
    batch; with `under`, that lease must hold."""
    yield from _check_held(under)
    fresh, holders = rows, dict[str, str]()
    if new.unique is not None:
        first: dict[str | None, NewRow] = {}
        for row in rows:
            first.setdefault(row.key, row)
        holders = yield from _take_keys(list(first.values()), new)
        fresh = [row for row in first.values() if holders[row.key or ""] == row.id]
    if fresh and new.batch_id is not None:
        yield from batches.join(new.batch_id, len(fresh), own or under)
    yield from add_rows(fresh, new)
    return holders


def _take_keys(rows: Sequence[NewRow], new: NewJob) -> Steps[dict[str, str]]:
    wanted = [(row.key or "", row.id) for row in rows]
    return (yield from keys.take_keys(keys.scope_of(new.task, new.owner), wanted, new.unique or "", new.window))


@operation()
def enqueue_once(
    job_id: str,
    args: str,
    new: NewJob,
    key: str | None = None,
    own: tuple[str, str] | None = None,
    under: tuple[str, str] | None = None,
) -> Steps[bool | str]:
    """Insert a job under a client-chosen id; False when any job has or had that id, whoever chose it, and the id of the
    other job when that one has its key. `own` and `under` as for many."""
    yield from _check_held(under)
    taken = yield Call("take_id", key=job_id, job_id=job_id)
    if not taken or (yield Call("known_id", job_id=job_id)):
        return False
    row = NewRow(job_id, args, key, new.source)
    if new.unique is not None:
        holders = yield from _take_keys([row], new)
        if holders[key or ""] != job_id:
            yield Call("give_id_back", key=job_id)
            return holders[key or ""]
    if new.batch_id is not None:
        yield from batches.join(new.batch_id, 1, own or under)
    yield from add_rows([row], new)
    return True


def _check_held(lease: tuple[str, str] | None) -> Steps[None]:
    """An attempt makes jobs only as long as it holds its own."""
    if lease is not None and not (yield Call("lock_held", mine=[lease])):
        raise LeaseLost(f"job {lease[0]} is no longer held by this attempt; its child job was not enqueued", *lease)


@operation(single=True, hot=True, size=lambda worker, token, lanes, n, lease: n)
def claim(worker: str, token: str, lanes: Sequence[Lane], n: int, lease: float) -> Steps[list[Claimed]]:
    """Take up to `n` ready jobs under `token`, best priority first, oldest first within a priority. Fewer than `n`
    means that there are no more only if every lane gave less than its `take`."""
    if n <= 0 or not lanes:
        return []
    whole = all(lane.take >= n for lane in lanes)
    front = yield Call("front" if whole else "front_merged", lane=lanes, n=n)  # on PostgreSQL a part of the claim
    rows = yield Call(
        "claim", worker=worker, token=token, lane=lanes, n=n, lease=lease, front=[row[-1] for row in front]
    )
    claimed = in_claim_order([row[:-1] for row in front] or rows, token, worker)
    if front:  # on PostgreSQL a part of the claim
        yield from keys.let_go([job.id for job in claimed if job.unique_mode == "while_queued"])
    return claimed


@operation()
def claim_one(job_id: str, worker: str, token: str, lease: float) -> Steps[Claimed | None]:
    """Take this very job, if it may be claimed now."""
    yield Call("promote_one", job_id=job_id)
    found = yield Call("claimable", job_id=job_id)
    if not found:
        return None
    under = {"worker": worker, "token": token, "lease": lease, "epoch": 0, "at": found[0][1]}
    picked = [(job_id,)]
    rows = (yield Call("take", picked=picked, **under)) or (yield Call("taken", picked=picked))
    (claimed,) = in_claim_order(rows, token, worker)
    yield from keys.let_go([claimed.id] if claimed.unique_mode == "while_queued" else [])
    if claimed.batch_id is not None:
        yield Call("start_batches", asked=[(claimed.batch_id,)])
    return claimed


@operation(read=True)
def adopt(worker: str, token: str) -> Steps[list[Claimed]]:
    """What a claim took whose reply was lost."""
    rows = yield Call("adopt", worker=worker, token=token)
    return in_claim_order(rows, token, worker)


def in_claim_order(rows: Sequence[Row], token: str, worker: str) -> list[Claimed]:
    """Rows of the columns `{claimed}` as records."""
    return sorted([Claimed._make((*row, token, worker)) for row in rows], key=_PRIORITY_AND_ID)


@operation(single=True, repeatable=True, hot=True, size=lambda done, keep: len(done))
def succeed(done: Sequence[tuple[str, str, str | None]], keep: Keep) -> Steps[bool]:
    """Plain successes (id, token, result) by the shortest way; answers whether all of them were applied. If not,
    `settle` tells for each what became of it."""
    return (yield from _succeed(done, keep))


class Marks(NamedTuple):
    """What a success must be told to, beyond the job's own row."""

    sources: Sequence[tuple[str, int]] = ()  # and the epoch of its breaker
    keyed: Sequence[str] = ()  # jobs with a key
    batches: Sequence[str] = ()  # one for each job


@operation(repeatable=True, hot=True, size=lambda done, keep, marks: len(done))
def succeed_marked(done: Sequence[tuple[str, str, str | None]], keep: Keep, marks: Marks) -> Steps[bool]:
    """The same for jobs with a source, a key or a batch: all of them, with their marks, or none."""
    if not (yield from _succeed(done, keep)):
        raise LeaseLost("not all of these attempts hold their jobs")
    yield from keys.done(marks.keyed)
    yield from batches.count([batches.ended(batch_id, State.SUCCEEDED) for batch_id in marks.batches])
    yield from health.succeeded(marks.sources)
    return True


def _succeed(done: Sequence[tuple[str, str, str | None]], keep: Keep) -> Steps[bool]:
    once = {row[:2]: row for row in done}
    rows = sorted(once.values(), key=_first)
    counted = yield Call("succeed", done=rows, keep=keep.succeeded)
    yield Call("succeed_remove", done=rows)  # on PostgreSQL a part of the first
    removed = yield Call("changed")
    return bool(len(rows) == (counted or removed)[0][0])


@operation(repeatable=True)
def settle(settlements: Sequence[Settlement], keep: Keep) -> Steps[dict[str, Answer]]:
    """Apply transitions under the fence. Answers for each job: applied, duplicate (already settled by this
    very token) or lost (somebody else's by now)."""
    return (yield from _settle(settlements, keep))


def _settle(settlements: Sequence[Settlement], keep: Keep, by_holder: bool = True) -> Steps[dict[str, Answer]]:
    rows = yield Call("lock_held", mine=[(s.id, s.token) for s in settlements])
    held = {(row[0], row[1]): bool(row[2]) for row in rows}
    sources = {row[0]: (row[3], row[4]) for row in rows if row[3] is not None}
    applied: dict[str, Settlement] = {}
    for s in settlements:
        if (s.id, s.token) in held:
            applied.setdefault(s.id, _unless_cancelled(s, held[s.id, s.token]))
    answers: dict[str, Answer] = dict.fromkeys(applied, "applied")
    missed = [s for s in settlements if s.id not in applied]
    if missed:
        settled = yield Call("settled_tokens", asked=[(s.id,) for s in missed])
        tokens = {row[0]: row[1] for row in settled}
        for s in missed:
            answers[s.id] = "duplicate" if tokens.get(s.id) == s.token else "lost"
    yield from _apply(list(applied.values()), keep, by_holder)
    yield from health.tell([(*sources[s.id], s.transition) for s in applied.values() if s.id in sources])
    return answers


def _unless_cancelled(s: Settlement, cancel_requested: bool) -> Settlement:
    """A job whose cancel was asked for does not go back to waiting, even if its worker had not yet heard of it."""
    if not cancel_requested or s.transition.state in FINAL:
        return s
    return s._replace(transition=CANCELLED)


def _apply(held: Sequence[Settlement], keep: Keep, by_holder: bool) -> Steps[None]:
    """Write transitions of jobs whose rows the caller has locked. Only the holder's own token is left as
    `settled_token`: a zombie whose lease the sweeper ended must be told `lost`, not `duplicate`."""
    ended = [s for s in held if s.transition.outcome is not Outcome.SUCCEEDED]
    if ended:
        yield Call("record_attempts", ended=[_ended(s.id, s.transition) for s in ended])
    back = [s for s in held if s.transition.state not in FINAL]
    if back:
        yield Call("requeue", back=[(*_back(s.id, s.transition), int(by_holder)) for s in back])
    final = [s for s in held if s.transition.state in FINAL]
    if final:
        yield from _finish([_final(s.id, s.transition, keep) for s in final], by_holder)
    for s in held:
        for job_id, args, new in s.follow_ups:
            yield from add([(job_id, args)], new)


def _ended(job_id: str, t: Transition) -> tuple[Any, ...]:
    return (job_id, str(t.outcome), t.error_code, t.error_message)


def _back(job_id: str, t: Transition) -> tuple[Any, ...]:
    return (job_id, str(t.state), t.delay, t.released, t.lost, t.convicted, t.error_code, t.error_message)


def _final(job_id: str, t: Transition, keep: Keep) -> tuple[Any, ...]:
    counts = (t.released, t.lost, t.convicted)
    return (job_id, str(t.state), t.result, t.error_code, t.error_message, *counts, keep.of(t.state))


def _finish(rows: list[tuple[Any, ...]], by_holder: bool = False) -> Steps[set[str]]:
    """Move rows of `_final` that the caller has locked, and tell their batches and keys; answers the batches."""
    states = {row[0]: State(row[1]) for row in rows}
    errors = {row[0]: (row[3], ": ".join(filter(None, (row[3], row[4]))) or None) for row in rows}
    marked = yield Call("ending", asked=[(row[0],) for row in rows])
    yield Call("finish_copy", final=[(*row, int(by_holder)) for row in rows])
    yield Call("finish_remove", gone=[(row[0],) for row in rows])
    keyed = [row[0] for row in marked if row[2] is not None]
    yield from keys.done([job_id for job_id in keyed if states[job_id] is State.SUCCEEDED])
    yield from keys.given_up([job_id for job_id in keyed if states[job_id] is not State.SUCCEEDED])
    counted = [(row[1], row[0]) for row in marked if row[1] is not None]
    yield from batches.count([batches.ended(batch, states[job_id], *errors[job_id]) for batch, job_id in counted])
    return {batch for batch, _ in counted}


@operation(read=True)
def settled_by(job_id: str, token: str) -> Steps[bool]:
    """Whether this very lease has settled the job: tells what became of a COMMIT whose reply was lost."""
    rows = yield Call("settled_tokens", asked=[(job_id,)])
    return any(row[1] == token for row in rows)


@operation(single=True, repeatable=True)
def beat(leases: Sequence[tuple[str, str]], lease: float) -> Steps[set[str]]:
    """Renew these (id, token) leases; answers the ids that were. Locked rows are passed over."""
    return {row[0] for row in (yield Call("beat", mine=leases, lease=lease))}


@operation(single=True, repeatable=True)
def beat_waiting(job_id: str, token: str, lease: float) -> Steps[bool]:
    """Renew one lease, waiting for whoever has its row locked."""
    return bool((yield Call("beat_waiting", id=job_id, token=token, lease=lease)))


@operation(read=True)
def held(leases: Sequence[tuple[str, str]]) -> Steps[dict[str, bool]]:
    """The leases that still hold, by job id, and whether their cancel was asked for."""
    rows = yield Call("held", mine=leases)
    return {row[0]: bool(row[1]) for row in rows}


@operation(single=True, repeatable=True)
def progress(told: Sequence[tuple[str, str, int | None, str | None, str | None]]) -> Steps[set[str]]:
    """Store (id, token, progress, phase, message); answers the ids whose lease still holds."""
    rows = yield Call("progress", told=told)
    return {row[0] for row in rows}


@operation()
def reclaim(draws: Sequence[float], guard: float, keep: Keep, only: str | None = None) -> Steps[list[Reclaimed]]:
    """End leases that ran out, one for each jitter value in `draws` at most; with `only`, that of one job. The server
    must have been up for `guard` seconds, so that an outage does not look like the death of every worker."""
    rows = yield Call("expired", n=len(draws), guard=guard, job_id=only)
    lost = [Claimed._make(row) for row in rows]
    settlements = []
    for job, draw in zip(lost, draws, strict=False):
        transition = decide(job, Lost(worker=job.worker), draw)
        settlements.append(Settlement(job.id, job.token, transition, follow_ups(job, transition)))
    if settlements:
        answers = yield from _settle(settlements, keep, by_holder=False)
        if left := [job_id for job_id, answer in answers.items() if answer != "applied"]:
            # Nobody else can have had it in between: its row is locked. Without an error it would be tried for ever.
            raise StoreError(f"the lease of job {left[0]} cannot be ended: its row has no lease_token")
    return [Reclaimed(job, s.transition) for job, s in zip(lost, settlements, strict=False)]


@operation()
def lapsed_ids(n: int, guard: float) -> Steps[list[str]]:
    """The jobs that `reclaim` takes."""
    return [row[0] for row in (yield Call("expired", n=n, guard=guard))]


@operation(single=True, repeatable=True)
def promote(n: int) -> Steps[tuple[int, float | None]]:
    """Make up to `n` due jobs claimable; answers how many, and the seconds until the next one is due."""
    answer = yield Call("promote", n=n)
    counted = yield Call("promoted")  # on PostgreSQL a part of the first
    ((count, due),) = answer or counted
    if count >= n:
        due = 0  # the batch was full: there may be more
    return int(count), (None if due is None else float(due))


@operation(read=True)
def due_ids(n: int) -> Steps[list[str]]:
    """The jobs that `promote` takes."""
    return [row[0] for row in (yield Call("due_ids", n=n))]


@operation(single=True, repeatable=True)
def promote_one(job_id: str) -> Steps[tuple[int, float | None]]:
    """Make one job claimable if it is due; answers as `promote` does."""
    yield Call("promote_one", job_id=job_id)
    return 1, 0.0


@operation(read=True)
def ready_ids(lanes: Sequence[tuple[str, str]], n: int, after: str = NO_ID) -> Steps[list[str]]:
    """Up to `n` claimable jobs of these (queue, task) after an id, with a source or without one."""
    return [row[0] for row in (yield Call("ready_ids", lane=lanes, n=n, id=after))]


class Undone(RowlockError):
    """What was tried works, and was rolled back."""


@operation()
def try_claim(ids: Sequence[str]) -> Steps[None]:
    """Whether these jobs can be claimed at all: claims them and raises `Undone`; another error when one of them cannot.
    Those that somebody else has locked are passed over."""
    picked = yield Call("lock_ready", picked=[(job_id,) for job_id in ids])
    if not picked:
        raise Undone
    under = {"worker": "nobody", "token": NO_ID, "lease": 0.0, "epoch": 0}
    ((at,),) = yield Call("clock")
    rows = (yield Call("take", picked=picked, at=moment(at), **under)) or (yield Call("taken", picked=picked))
    in_claim_order(rows, NO_ID, "nobody")
    raise Undone


@operation(read=True)
def to_sweep() -> Steps[tuple[bool, bool, bool]]:
    """Whether there are leases that ran out, waiting jobs that are past their latest start, and open batches."""
    ((lapsed, overdue, batched),) = yield Call("to_sweep")
    return bool(lapsed), bool(overdue), bool(batched)


@operation()
def expire(n: int, keep: Keep, only: str | None = None) -> Steps[int]:
    """Cancel up to `n` waiting jobs whose latest start has passed; one of them with `only`."""
    rows = yield Call("overdue", n=n, job_id=only)
    transition = Transition(
        State.CANCELLED,
        Outcome.CANCELLED,
        error_code=batches.EXPIRED,
        error_message="not started before expires_at",
    )
    if rows:
        touched = yield from _finish([_final(row[0], transition, keep) for row in rows])
        yield from batches.end_complete(touched)
    return len(rows)


@operation()
def overdue_ids(n: int) -> Steps[list[str]]:
    """The jobs that `expire` takes."""
    return [row[0] for row in (yield Call("overdue", n=n))]


@operation()
def cancel(ids: Sequence[str], keep: Keep) -> Steps[dict[str, CancelAnswer]]:
    """Cancel waiting jobs at once and ask running ones to stop."""
    asked = [(job_id,) for job_id in sorted(set(ids))]
    answers: dict[str, CancelAnswer] = {job_id: "missing" for (job_id,) in asked}
    rows = yield Call("lock_jobs", asked=asked)
    waiting = [row[0] for row in rows if row[1] != State.RUNNING]
    running = [row for row in rows if row[1] == State.RUNNING]
    if waiting:
        touched = yield from _finish([_final(job_id, CANCELLED, keep) for job_id in waiting])
        yield from batches.end_complete(touched)
        answers.update(dict.fromkeys(waiting, "cancelled"))
    if running:
        yield Call("request_cancel", asked=[(row[0],) for row in running])
        bells = yield Call("ring_workers", told=[(worker,) for worker in sorted({row[2] for row in running})])
        if rung := tuple(row[0] for row in bells if row[0]):
            yield Ring(rung, "cancel")
        answers.update({row[0]: "cancelling" for row in running})
    rest = [job_id for job_id, answer in answers.items() if answer == "missing"]
    if rest:
        finished = yield Call("final_states", asked=[(job_id,) for job_id in rest])
        answers.update({row[0]: "cancelled" if row[1] == State.CANCELLED else "final" for row in finished})
    return answers


@operation()
def retry(ids: Sequence[str], tries: int) -> Steps[set[str]]:
    """An operator's retry: dead and cancelled jobs go back to queued with `tries` more tries; answers their ids. One
    whose key another job has taken meanwhile stays as it is."""
    rows = yield Call("lock_finished", asked=[(job_id,) for job_id in sorted(set(ids))])
    revived = []
    for row in rows:
        if (yield from _takes_key_back(row)):
            revived.append(row)
    if revived:
        asked = [(row[0],) for row in revived]
        yield Call("revive", asked=asked, tries=tries)
        yield Call("revive_remove", gone=asked)
        yield from batches.reopen([(row[0], row[6], State(row[3]), row[7]) for row in revived if row[6] is not None])
        yield Call("wake")
        yield from ring()
    return {row[0] for row in revived}


def _takes_key_back(finished: Row) -> Steps[bool]:
    """Whether a finished job may run again: its key, if it has one that lasts, must be free."""
    job_id, task, owner, _, key, mode, *_ = finished
    if mode not in ("until_done", "forever"):
        return True
    holders = yield from keys.take_keys(keys.scope_of(task, owner), [(key, job_id)], mode, None)
    return bool(holders[key] == job_id)


@operation(single=True, repeatable=True)
def wake() -> Steps[None]:
    """Wake workers that sleep, where a statement can do that."""
    yield Call("wake")


@operation(read=True)
def work_left(lanes: Sequence[Lane]) -> Steps[bool]:
    """Whether anything in these lanes runs or is due."""
    return bool((yield Call("work_left", lane=[lane[:2] for lane in lanes])))
