"""Settle: write how attempts ended.

`settle` runs the operation `succeed` for successes without a follow-up, and `apply` for every other transition. Locks
are always taken in this order: jobs by id, then batches, then sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed, Settlement
from rowlock.core.policy import CANCELLED, DAY, Transition
from rowlock.core.states import FINAL, Outcome, State
from rowlock.core.tracebacks import STORED_BYTES, traceback_text
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs import keys
from rowlock.store.jobs.enqueue import add
from rowlock.store.jobs.follow_ups import follow_ups
from rowlock.store.sources import outcomes

Answer = Literal["applied", "duplicate", "lost"]
_first = itemgetter(0)
FEW = 20  # up to this many successes, a caller on SQLite may write itself; larger writes go to the writer's thread


class Keep(NamedTuple):
    """How long finished jobs are kept, in seconds, unless their task says otherwise."""

    succeeded: float = 7 * DAY
    failed: float = 30 * DAY

    def of(self, state: State) -> float:
        return self.succeeded if state is State.SUCCEEDED else self.failed


@operation(repeatable=True)
def apply(settlements: Sequence[Settlement], keep: Keep) -> Steps[dict[str, Answer]]:
    """Write transitions of any kind, with the answers of `settle`. After the commit the caller must end the batches
    that are now complete (`batches.end_after_commit`)."""
    return (yield from settle_under_fence(settlements, keep))


def settle_under_fence(
    settlements: Sequence[Settlement], keep: Keep, by_holder: bool = True
) -> Steps[dict[str, Answer]]:
    """`apply` as part of another operation. A sweep passes `by_holder=False`: it ends leases of other workers."""
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
    yield from outcomes.apply([(*sources[job.id], t) for job, t in applied.values() if job.id in sources])
    return answers


def _unless_cancelled(s: Settlement, cancel_requested: bool) -> Settlement:
    """The settlement; turned into a cancel if one was requested and the job would go back to the queue, because its
    worker may not have seen the request."""
    if not cancel_requested or s.transition.state in FINAL:
        return s
    return s._replace(transition=CANCELLED)


def _apply(held: Sequence[Settlement], keep: Keep, by_holder: bool) -> Steps[None]:
    """Write transitions of jobs whose rows the caller has locked. Only the holder's own token becomes `settled_token`:
    a zombie whose lease the sweeper ended must get the answer `lost`, not `duplicate`."""
    ended = [attempt_row(job.id, t) for job, t in held if t.outcome is not Outcome.SUCCEEDED]
    if ended:
        yield Call("record_attempts", ended=ended)
    back = [_requeue_row(job.id, t, by_holder) for job, t in held if t.state not in FINAL]
    if back:
        yield Call("requeue", back=back)
    final = {job.id: t for job, t in held if t.state in FINAL}
    if final:
        yield from finish(final, keep, by_holder)
    known: dict[str, str] = {}
    for job, t in held:
        for job_id, args, new in (yield from follow_ups(job, t, known)):
            yield from add([(job_id, args)], new)


def attempt_row(job_id: str, t: Transition) -> tuple[Any, ...]:
    stored = None if t.trace is None else traceback_text(t.trace, STORED_BYTES)
    return (job_id, str(t.outcome), t.error_code, t.error_message, stored)


def _requeue_row(job_id: str, t: Transition, by_holder: bool) -> tuple[Any, ...]:
    counts = (t.released, t.lost, t.convicted)
    return (job_id, str(t.state), t.delay, *counts, *t.streaks, t.error_code, t.error_message, int(by_holder))


def _final_row(job_id: str, t: Transition, keep: Keep, by_holder: bool) -> tuple[Any, ...]:
    error, counts = (t.error_code, t.error_message), (t.released, t.lost, t.convicted)
    return (job_id, str(t.state), t.result, *error, *counts, keep.of(t.state), int(by_holder))


def finish(final: Mapping[str, Transition], keep: Keep, by_holder: bool = False) -> Steps[set[str]]:
    """Move jobs that the caller has locked to jobs_finished, as these transitions demand, release their keys and count
    them in their batches. Returns the ids of these batches."""
    asked = [(job_id,) for job_id in final]
    marked = yield Call("ending", asked=asked)
    yield Call("finish_copy", final=[_final_row(job_id, t, keep, by_holder) for job_id, t in final.items()])
    yield Call("finish_remove", gone=asked)
    keyed = [job.id for job in marked if job.unique_mode is not None]
    yield from keys.release([job_id for job_id in keyed if final[job_id].state is State.SUCCEEDED], State.SUCCEEDED)
    yield from keys.release([job_id for job_id in keyed if final[job_id].state is not State.SUCCEEDED], State.DEAD)
    counted = [(job.batch_id, final[job.id]) for job in marked if job.batch_id is not None]
    yield from batches.count([batches.ended(batch, t.state, t.error_code, t.error_message) for batch, t in counted])
    return {batch for batch, _ in counted}


async def settle(
    store: Store,
    settlements: Sequence[tuple[Claimed, Transition]],
    keep: Keep,
    tell: Callable[[dict[str, Answer]], None] | None = None,
) -> dict[str, Answer]:
    """Write how attempts ended, each under its lease, then end the batches that are now complete. Successes without a
    follow-up go through `succeed`, all other transitions through `apply`. Returns for each job: applied, duplicate
    (this token has settled it before) or lost (the lease no longer holds). `tell` is called with these answers before
    the batches end, because ending them may take long if the database goes away."""
    answers: dict[str, Answer] = {}
    done = [(job, t) for job, t in settlements if t.state is State.SUCCEEDED and job.on_success is None]
    linked = [job for job, _ in done if is_linked(job)]
    if done:
        rows = [(job.id, job.token, t.result) for job, t in done]
        with suppress(LeaseLost):  # if one lease was lost, nothing is applied
            if await store.run(succeed(rows, keep, linked)):
                answers = dict.fromkeys([job.id for job, _ in done], "applied")
    # `succeed` doesn't report which of `done` it applied. `apply` gets them all and answers `duplicate` for those.
    rest = [Settlement(job, t) for job, t in settlements if job.id not in answers]
    if rest:
        general = await store.run(apply(rest, keep))
        answers.update(general)
    if tell is not None:
        tell(answers)
    if rest or linked:
        ended = {job.batch_id for job, t in settlements if job.batch_id is not None and t.state in FINAL}
        await batches.end_after_commit(store, ended)
    return answers


def is_linked(job: Claimed) -> bool:
    """Whether the end of this job changes other rows: of its source, its batch or its key."""
    return job.source is not None or job.batch_id is not None or job.unique_mode is not None


@operation(
    single=lambda done, keep, linked=(): not linked,
    repeatable=True,
    hot=True,
    size=lambda done, keep, linked=(): len(done) if len(done) <= FEW else 0,
)
def succeed(done: Sequence[tuple[str, str, str | None]], keep: Keep, linked: Sequence[Claimed] = ()) -> Steps[bool]:
    """Write successes (id, token, result) without follow-ups, in one statement if the engine can. Returns whether all
    of them were applied, but not which. `linked` holds the jobs with a source, a key or a batch, whose rows this
    transaction changes too; if there are any and one success was not applied, LeaseLost rolls everything back."""
    if (yield from dialect()).moves_in_one_statement:
        rows = sorted({row[:2]: row for row in done}.values(), key=_first)
        number, counted = len(rows), (yield Call("succeed", done=rows, keep=keep.succeeded))
    else:
        successes = {token + job_id: result for job_id, token, result in sorted(done, key=_first)}
        yield Call("succeed", done=successes, keep=keep.succeeded)
        yield Call("succeed_remove", done=successes)
        number, counted = len(successes), (yield Call("changed"))
    if number != counted[0].moved:
        if linked:
            raise LeaseLost("some of these attempts no longer hold their jobs")
        return False
    if linked:
        yield from keys.release([job.id for job in linked if job.unique_mode is not None], State.SUCCEEDED)
        in_batches = [job.batch_id for job in linked if job.batch_id is not None]
        yield from batches.count([batches.ended(batch_id, State.SUCCEEDED) for batch_id in in_batches])
        yield from outcomes.succeeded([(job.source, job.source_epoch or 0) for job in linked if job.source is not None])
    return True
