"""The first and the last write of a job: enqueue and settle.

`settle` runs the operations `succeed` and `transitions.apply`. Lock order everywhere: jobs by id, then batches, then
sources. Claims are in claim.py, running leases in leases.py, all transitions but successes without a follow-up in
transitions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter

from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed, NewJob, Settlement
from rowlock.core.policy import Transition
from rowlock.core.states import FINAL, State
from rowlock.store import batches, health, keys
from rowlock.store.adding import NewRow, add, add_rows
from rowlock.store.engines.engine import Store
from rowlock.store.engines.operation import Call, Steps, dialect, operation
from rowlock.store.transitions import Answer as Answer
from rowlock.store.transitions import Keep as Keep
from rowlock.store.transitions import apply

_first = itemgetter(0)
# What an enqueue answers for one job: an id, and whether that job is new. If not, it is an older job that has the id or
# holds the key.
NewOrOlder = tuple[str, bool]
FEW = 20  # successes that a caller on SQLite may write itself; with more, the writer's thread works beside the caller


@operation(single=True, enqueues=True, hot=True, size=lambda rows, new: len(rows))
def enqueue(rows: Sequence[tuple[str, str]], new: NewJob) -> Steps[None]:
    """Insert jobs (id, JSON arguments) that share their options: no key, no batch."""
    yield from add(rows, new)


@operation(enqueues=True)
def enqueue_rows(
    rows: Sequence[NewRow], new: NewJob, lease: tuple[str, str] | None = None, must_hold: bool = False
) -> Steps[list[NewOrOlder]]:
    """Insert jobs with keys, of a batch, or of different sources. `lease` is that of the attempt that enqueues them, if
    one does: it may add jobs to its own sealed batch. With `must_hold`, LeaseLost is raised if the attempt has lost the
    lease; an attempt that enqueues in its own transaction needs no such check, because its success is written under the
    lease."""
    if must_hold and lease is not None:
        yield from _check_held(lease)
    return (yield from _insert(rows, new, lease))


def _insert(rows: Sequence[NewRow], new: NewJob, lease: tuple[str, str] | None) -> Steps[list[NewOrOlder]]:
    """Take the keys of these jobs, and insert the jobs that got theirs; of two jobs with one key, the first gets it."""
    fresh, found = rows, [row.id for row in rows]
    if new.unique is not None:
        first: dict[str, str] = {}
        for row in rows:
            first.setdefault(row.key or "", row.id)
        scope = keys.scope_of(new.task, new.owner)
        holders = yield from keys.take_keys(scope, list(first.items()), new.unique, new.window)
        found = [holders[row.key or ""] for row in rows]
        fresh = [row for row, job_id in zip(rows, found, strict=True) if row.id == job_id]
    if fresh and new.batch_id is not None:
        yield from batches.join(new.batch_id, len(fresh), lease)
    yield from add_rows(fresh, new)
    return [(job_id, job_id == row.id) for row, job_id in zip(rows, found, strict=True)]


@operation(enqueues=True)
def enqueue_once(
    job_id: str,
    args: str,
    new: NewJob,
    key: str | None = None,
    lease: tuple[str, str] | None = None,
    must_hold: bool = False,
) -> Steps[list[NewOrOlder]]:
    """Insert a job under an id that the client chose, unless a job has or had that id; else as `enqueue_rows`."""
    if must_hold and lease is not None:
        yield from _check_held(lease)
    taken = yield Call("take_id", job_id=job_id)
    if not taken or (yield Call("known_id", job_id=job_id)):
        return [(job_id, False)]
    ((found, created),) = yield from _insert([NewRow(job_id, args, key, new.source)], new, lease)
    if not created:
        yield Call("give_id_back", key=job_id)
    return [(found, created)]


def _check_held(lease: tuple[str, str]) -> Steps[None]:
    """Raise LeaseLost if this lease does not hold: an attempt that lost its job must not create jobs."""
    if not (yield Call("lock_held", mine=[lease])):
        raise LeaseLost(f"job {lease[0]} is no longer held by this attempt; its child job was not enqueued", *lease)


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
        yield from health.succeeded([(job.source, job.source_epoch or 0) for job in linked if job.source is not None])
    return True
