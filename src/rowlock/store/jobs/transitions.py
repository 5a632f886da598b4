"""Writes transitions of any kind under the fence. Most successes take a shorter way, `jobs.succeed`.

Lock order everywhere: jobs by id, then batches, then sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rowlock.core.job import Settlement
from rowlock.core.policy import CANCELLED, DAY, Transition
from rowlock.core.states import FINAL, Outcome, State
from rowlock.core.tracebacks import STORED_BYTES, traceback_text
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.jobs import keys
from rowlock.store.jobs.follow_ups import follow_ups
from rowlock.store.jobs.insert import add
from rowlock.store.sources import outcomes

Answer = Literal["applied", "duplicate", "lost"]


class Keep(NamedTuple):
    """How long finished jobs are kept, in seconds, unless their task says otherwise."""

    succeeded: float = 7 * DAY
    failed: float = 30 * DAY

    def of(self, state: State) -> float:
        """The retention of one final state."""
        return self.succeeded if state is State.SUCCEEDED else self.failed


@operation(repeatable=True)
def apply(settlements: Sequence[Settlement], keep: Keep) -> Steps[dict[str, Answer]]:
    """Write transitions of any kind; returns what `jobs.settle` returns. After the commit the caller ends the batches
    that are complete (`batches.end_after_commit`)."""
    return (yield from settle_under_fence(settlements, keep))


def settle_under_fence(
    settlements: Sequence[Settlement], keep: Keep, by_holder: bool = True
) -> Steps[dict[str, Answer]]:
    """`apply` as a part of another operation. `by_holder` is False if it ends the lease of another worker (a sweep)."""
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
    yield from outcomes.tell([(*sources[job.id], t) for job, t in applied.values() if job.id in sources])
    return answers


def _unless_cancelled(s: Settlement, cancel_requested: bool) -> Settlement:
    """The settlement, but as a cancel if that was requested and the job would go back to the queue: its worker may not
    have known of the request."""
    if not cancel_requested or s.transition.state in FINAL:
        return s
    return s._replace(transition=CANCELLED)


def _apply(held: Sequence[Settlement], keep: Keep, by_holder: bool) -> Steps[None]:
    """Write transitions of jobs whose rows the caller has locked. Only the holder's own token is left as
    `settled_token`: a zombie whose lease the sweeper ended must be told `lost`, not `duplicate`."""
    ended = [attempt_row(job.id, t) for job, t in held if t.outcome is not Outcome.SUCCEEDED]
    if ended:
        yield Call("record_attempts", ended=ended)
    back = [_back_row(job.id, t, by_holder) for job, t in held if t.state not in FINAL]
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


def _back_row(job_id: str, t: Transition, by_holder: bool) -> tuple[Any, ...]:
    counts = (t.released, t.lost, t.convicted)
    return (job_id, str(t.state), t.delay, *counts, *t.streaks, t.error_code, t.error_message, int(by_holder))


def _final_row(job_id: str, t: Transition, keep: Keep, by_holder: bool) -> tuple[Any, ...]:
    error, counts = (t.error_code, t.error_message), (t.released, t.lost, t.convicted)
    return (job_id, str(t.state), t.result, *error, *counts, keep.of(t.state), int(by_holder))


def finish(final: Mapping[str, Transition], keep: Keep, by_holder: bool = False) -> Steps[set[str]]:
    """Move jobs, which the caller has locked, to jobs_finished as these transitions say, release their keys and count
    them in their batches; returns these batches."""
    asked = [(job_id,) for job_id in final]
    marked = yield Call("ending", asked=asked)
    yield Call("finish_copy", final=[_final_row(job_id, t, keep, by_holder) for job_id, t in final.items()])
    yield Call("finish_remove", gone=asked)
    keyed = [job.id for job in marked if job.unique_mode is not None]
    yield from keys.done([job_id for job_id in keyed if final[job_id].state is State.SUCCEEDED])
    yield from keys.given_up([job_id for job_id in keyed if final[job_id].state is not State.SUCCEEDED])
    counted = [(job.batch_id, final[job.id]) for job in marked if job.batch_id is not None]
    yield from batches.count([batches.ended(batch, t.state, t.error_code, t.error_message) for batch, t in counted])
    return {batch for batch, _ in counted}
