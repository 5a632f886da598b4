"""Settle: write how attempts ended.

`settle` runs the operations `succeed` and `transitions.apply`. Lock order everywhere: jobs by id, then batches, then
sources. Claims are in claim.py, running leases in leases.py, all transitions but successes without a follow-up in
transitions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter

from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed, Settlement
from rowlock.core.policy import Transition
from rowlock.core.states import FINAL, State
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs import keys
from rowlock.store.jobs.transitions import Answer as Answer
from rowlock.store.jobs.transitions import Keep as Keep
from rowlock.store.jobs.transitions import apply
from rowlock.store.sources import outcomes

_first = itemgetter(0)
FEW = 20  # successes that a caller on SQLite may write itself; with more, the writer's thread works beside the caller


async def settle(
    store: Store,
    settlements: Sequence[tuple[Claimed, Transition]],
    keep: Keep,
    tell: Callable[[dict[str, Answer]], None] | None = None,
) -> dict[str, Answer]:
    """Write how attempts ended, each under its lease; then end the batches that are complete. Successes without a
    follow-up go by `succeed`, all other transitions by `apply`. Returns for each job: applied, duplicate (this token
    has settled it before) or lost (the lease is no longer this one). `tell` gets that before the batches end, which may
    take long if the database goes away."""
    answers: dict[str, Answer] = {}
    done = [(job, t) for job, t in settlements if t.state is State.SUCCEEDED and job.on_success is None]
    linked = [job for job, _ in done if is_linked(job)]
    if done:
        rows = [(job.id, job.token, t.result) for job, t in done]
        with suppress(LeaseLost):  # one of the leases was lost: nothing is applied
            if await store.run(succeed(rows, keep, linked)):
                answers = dict.fromkeys([job.id for job, _ in done], "applied")
    # If not all of `done` were applied, `succeed` does not say which: `apply` answers `duplicate` for jobs that it
    # settled.
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
    of them were applied; if not, it does not say which. `linked` are the jobs with a source, a key or a batch, whose
    rows are changed in this transaction; with such jobs, LeaseLost rolls back if one success was not applied."""
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
            raise LeaseLost("not all of these attempts hold their jobs")
        return False
    if linked:
        yield from keys.done([job.id for job in linked if job.unique_mode is not None])
        in_batches = [job.batch_id for job in linked if job.batch_id is not None]
        yield from batches.count([batches.ended(batch_id, State.SUCCEEDED) for batch_id in in_batches])
        yield from outcomes.succeeded([(job.source, job.source_epoch or 0) for job in linked if job.source is not None])
    return True
