"""What a job's row goes through: enqueue, settle, expire, cancel, retry.

Each function builds an operation for `Store.run`. Lock order everywhere: jobs by id, then batches, then sources.
Claims are in claim.py, running leases in leases.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed, NewJob, Settlement
from rowlock.core.policy import DAY, Transition
from rowlock.core.remote import REMOTE
from rowlock.core.states import FINAL, Outcome, State
from rowlock.core.tracebacks import STORED_BYTES, traceback_text
from rowlock.store import batches, health, keys
from rowlock.store.adding import NewRow, add, add_rows
from rowlock.store.engines.engine import Store
from rowlock.store.engines.operation import Call, Row, Steps, dialect, operation
from rowlock.store.follow_ups import follow_ups
from rowlock.store.wake import wake_idle, wake_to_cancel

Answer = Literal["applied", "duplicate", "lost"]
CancelAnswer = Literal["cancelled", "cancelling", "final", "missing"]
_first = itemgetter(0)
CANCELLED = Transition(State.CANCELLED, Outcome.CANCELLED, error_code="CANCELLED")


class Keep(NamedTuple):
    """How long finished jobs are kept, in seconds, unless their task says otherwise."""

    succeeded: float = 7 * DAY
    failed: float = 30 * DAY

    def of(self, state: State) -> float:
        """The retention of one final state."""
        return self.succeeded if state is State.SUCCEEDED else self.failed


@operation(single=True, enqueues=True, hot=True, size=lambda rows, new: len(rows))
def enqueue(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options: no key, no batch."""
    yield from add(rows, new)


@operation(enqueues=True)
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


@operation(enqueues=True)
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


async def settle(
    store: Store,
    settlements: Sequence[tuple[Claimed, Transition]],
    keep: Keep,
    tell: Callable[[dict[str, Answer]], None] | None = None,
) -> dict[str, Answer]:
    """Write how attempts ended, each under its lease, by the shortest way; then end the batches that are complete.
    Answers for each job: applied, duplicate (already settled by this very token) or lost (somebody else's by now).
    `tell` gets the answers before the batches end, which may take long if the database goes away meanwhile."""
    answers: dict[str, Answer] = {}
    done = [(job, t) for job, t in settlements if t.state is State.SUCCEEDED and job.on_success is None]
    marked = [job for job, _ in done if is_marked(job)]
    if done:
        rows = [(job.id, job.token, t.result) for job, t in done]
        with suppress(LeaseLost):  # one of the leases was lost: nothing is applied
            if await store.run(succeed(rows, keep, marked)):
                answers = dict.fromkeys([job.id for job, _ in done], "applied")
    # If not all of `done` were applied, all of them are left: `apply` finds those that were settled by their own token.
    rest = [Settlement(job, t) for job, t in settlements if job.id not in answers]
    if rest:
        general = await store.run(apply(rest, keep))
        answers.update(general)
    if tell is not None:
        tell(answers)
    if rest or marked:
        ended = {job.batch_id for job, t in settlements if job.batch_id is not None and t.state in FINAL}
        await batches.end_after_commit(store, ended)
    return answers


def is_marked(job: Claimed) -> bool:
    """Whether a source, a batch or a key must be told of the end of this job."""
    return job.source is not None or job.batch_id is not None or job.unique_mode is not None


@operation(
    single=lambda done, keep, marked=(): not marked,
    repeatable=True,
    hot=True,
    size=lambda done, keep, marked=(): len(done),
)
def succeed(done: Sequence[tuple[str, str, str | None]], keep: Keep, marked: Sequence[Claimed] = ()) -> Steps[bool]:
    """Successes (id, token, result) without follow-ups, in one statement where the engine can; answers whether all of
    them were applied. `marked` are those with a source, a key or a batch, which are told of it in the same transaction;
    with these, LeaseLost undoes everything if one was not applied."""
    if (yield from dialect()).moves_in_one_statement:
        rows = sorted({row[:2]: row for row in done}.values(), key=_first)
        number, counted = len(rows), (yield Call("succeed", done=rows, keep=keep.succeeded))
    else:
        successes = {token + job_id: result for job_id, token, result in sorted(done, key=_first)}
        yield Call("succeed", done=successes, keep=keep.succeeded)
        yield Call("succeed_remove", done=successes)
        number, counted = len(successes), (yield Call("changed"))
    if number != counted[0].moved:
        if marked:
            raise LeaseLost("not all of these attempts hold their jobs")
        return False
    if marked:
        yield from keys.done([job.id for job in marked if job.unique_mode is not None])
        in_batches = [job.batch_id for job in marked if job.batch_id is not None]
        yield from batches.count([batches.ended(batch_id, State.SUCCEEDED) for batch_id in in_batches])
        yield from health.succeeded([(job.source, job.source_epoch or 0) for job in marked if job.source is not None])
    return True


@operation(repeatable=True)
def apply(settlements: Sequence[Settlement], keep: Keep) -> Steps[dict[str, Answer]]:
    """Any transitions, in one transaction or as a part of the caller's; answers as `settle` does. Who commits ends the
    batches (`batches.end_after_commit`)."""
    return (yield from settle_under_fence(settlements, keep))


def settle_under_fence(
    settlements: Sequence[Settlement], keep: Keep, by_holder: bool = True
) -> Steps[dict[str, Answer]]:
    """`apply` as a part of another operation. Unless it is `by_holder`, the lease that it ends is somebody else's."""
    rows = yield Call("lock_held", mine=[(job.id, job.token) for job, _ in settlements])
    held = {(row.id, row.token): bool(row.cancel_requested) for row in rows}
    sources = {row.id: (row.source, row.source_epoch) for row in rows if row.source is not None}
    applied: dict[str, Settlement] = {}
    for s in settlements:
        if (lease := (s.job.id, s.job.token)) in held:
            applied.setdefault(s.job.id, _unless_cancelled(s, held[lease]))
    answers: dict[str, Answer] = dict.fromkeys(applied, "applied")
    missed = [job for job, _ in settlements if job.id not in applied]
    if missed:
        settled = yield Call("settled_tokens", asked=[(job.id,) for job in missed])
        tokens = {row.id: row.settled_token for row in settled}
        for job in missed:
            answers[job.id] = "duplicate" if tokens.get(job.id) == job.token else "lost"
    yield from _apply(list(applied.values()), keep, by_holder)
    yield from health.tell([(*sources[job.id], t) for job, t in applied.values() if job.id in sources])
    return answers


def _unless_cancelled(s: Settlement, cancel_requested: bool) -> Settlement:
    """A job whose cancel was asked for does not go back to waiting, even if its worker had not yet heard of it."""
    if not cancel_requested or s.transition.state in FINAL:
        return s
    return s._replace(transition=CANCELLED)


def _apply(held: Sequence[Settlement], keep: Keep, by_holder: bool) -> Steps[None]:
    """Write transitions of jobs whose rows the caller has locked. Only the holder's own token is left as
    `settled_token`: a zombie whose lease the sweeper ended must be told `lost`, not `duplicate`."""
    ended = [_ended(job.id, t) for job, t in held if t.outcome is not Outcome.SUCCEEDED]
    if ended:
        yield Call("record_attempts", ended=ended)
    back = [(*_back(job.id, t), int(by_holder)) for job, t in held if t.state not in FINAL]
    if back:
        yield Call("requeue", back=back)
    final = [_final(job.id, t, keep) for job, t in held if t.state in FINAL]
    if final:
        yield from _finish(final, by_holder)
    for job, t in held:
        for job_id, args, new in follow_ups(job, t):
            yield from add([(job_id, args)], new)


def _ended(job_id: str, t: Transition) -> tuple[Any, ...]:
    stored = None if t.trace is None else traceback_text(t.trace, STORED_BYTES)
    return (job_id, str(t.outcome), t.error_code, t.error_message, stored)


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
    keyed = [job.id for job in marked if job.unique_mode is not None]
    yield from keys.done([job_id for job_id in keyed if states[job_id] is State.SUCCEEDED])
    yield from keys.given_up([job_id for job_id in keyed if states[job_id] is not State.SUCCEEDED])
    counted = [(job.batch_id, job.id) for job in marked if job.batch_id is not None]
    yield from batches.count([batches.ended(batch, states[job_id], *errors[job_id]) for batch, job_id in counted])
    return {batch for batch, _ in counted}


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
        touched = yield from _finish([_final(row.id, transition, keep) for row in rows])
        yield from batches.end_complete(touched)
    return len(rows)


@operation()
def overdue_ids(n: int) -> Steps[list[str]]:
    """The jobs that `expire` takes."""
    return [row.id for row in (yield Call("overdue", n=n))]


@operation()
def cancel(ids: Sequence[str], keep: Keep) -> Steps[dict[str, CancelAnswer]]:
    """Cancel waiting jobs and those that run behind Redis at once, and ask other running ones to stop."""
    asked = [(job_id,) for job_id in sorted(set(ids))]
    answers: dict[str, CancelAnswer] = {job_id: "missing" for (job_id,) in asked}
    rows = yield Call("lock_jobs", asked=asked)
    # A worker behind Redis cannot be made to stop: its job ends here and now, and what it sends afterwards is ignored.
    remote = [row.id for row in rows if row.state == State.RUNNING and row.locked_by in REMOTE]
    waiting = [row.id for row in rows if row.state != State.RUNNING] + remote
    running = [row for row in rows if row.state == State.RUNNING and row.locked_by not in REMOTE]
    if remote:
        yield Call("record_attempts", ended=[_ended(job_id, CANCELLED) for job_id in remote])
        yield Call("outbox_heard", heard=[(job_id,) for job_id in remote])
        yield Call("outbox_cancel", asked=[(job_id,) for job_id in remote])
    if waiting:
        touched = yield from _finish([_final(job_id, CANCELLED, keep) for job_id in waiting])
        yield from batches.end_complete(touched)
        answers.update(dict.fromkeys(waiting, "cancelled"))
    if running:
        yield Call("request_cancel", asked=[(row.id,) for row in running])
        yield from wake_to_cancel(sorted({row.locked_by for row in running}))
        answers.update({row.id: "cancelling" for row in running})
    rest = [job_id for job_id, answer in answers.items() if answer == "missing"]
    if rest:
        finished = yield Call("final_states", asked=[(job_id,) for job_id in rest])
        answers.update({row.id: "cancelled" if row.state == State.CANCELLED else "final" for row in finished})
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
        asked = [(row.id,) for row in revived]
        yield Call("revive", asked=asked, tries=tries)
        yield Call("revive_remove", gone=asked)
        members = [row for row in revived if row.batch_id is not None]
        yield from batches.reopen([(row.id, row.batch_id, State(row.state), row.error_code) for row in members])
        yield from wake_idle()
    return {row.id for row in revived}


def _takes_key_back(finished: Row) -> Steps[bool]:
    """Whether a finished job may run again: its key, if it has one that lasts, must be free."""
    if finished.unique_mode not in ("until_done", "forever"):
        return True
    scope, key = keys.scope_of(finished.task, finished.owner), finished.unique_key
    holders = yield from keys.take_keys(scope, [(key, finished.id)], finished.unique_mode, None)
    return bool(holders[key] == finished.id)
