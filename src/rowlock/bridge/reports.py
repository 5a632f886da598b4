"""What workers behind Redis report: progress and results, each written under the lease of the attempt it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed, Settlement
from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs import settle as settle_jobs
from rowlock.store.jobs.transitions import Answer, Keep, settle_under_fence

File = tuple[str, str, str, str]  # job id, token, uri, checksum


class Standing(NamedTuple):
    """Where a job stands that nobody behind Redis has."""

    task: str
    state: State


class Known(NamedTuple):
    """What the database knows about the jobs of some messages."""

    held: dict[str, Claimed]  # those that a worker behind Redis has or can get
    others: dict[str, Standing]


@operation(read=True)
def known(ids: Sequence[str]) -> Steps[Known]:
    """Where these jobs stand; a job that does not exist is not among the answers."""
    rows = yield Call("remote_jobs", asked=[(job_id,) for job_id in ids])
    held = {row[0]: Claimed._make(row) for row in rows}
    rest = [(job_id,) for job_id in ids if job_id not in held]
    rows = (yield Call("job_states", asked=rest)) if rest else []
    return Known(held, {row.id: Standing(row.task, State(row.state)) for row in rows})


@operation(repeatable=True)
def hear(told: Sequence[tuple[str, str, int, str | None, str | None]], lease: float) -> Steps[set[str]]:
    """Store progress (id, token, progress, phase, message); returns the jobs whose lease holds."""
    rows = yield Call("hear", told=told, lease=lease)
    heard = {row.id for row in rows}
    if heard:
        yield Call("outbox_heard", heard=[(job_id,) for job_id in sorted(heard)])
    return heard


async def settle(
    store: Store, settlements: Sequence[Settlement], files: Sequence[File], keep: Keep
) -> dict[str, Answer]:
    """Write results under the fence, with the files that they name. Returns what `jobs.settle` returns; the caller ends
    the batches."""
    done = [s for s in settlements if s.transition.state is State.SUCCEEDED and s.job.on_success is None]
    answers: dict[str, Answer] = {}
    if done:
        unmarked = not files and not any(settle_jobs.is_linked(s.job) for s in done)
        try:
            await store.run(_succeed_unmarked(done, keep) if unmarked else _succeed(done, files, keep))
            answers = dict.fromkeys([s.job.id for s in done], "applied")
        except LeaseLost:
            pass  # nothing was written: `_settle` finds out which of the leases hold
    if rest := [s for s in settlements if s.job.id not in answers]:
        others = await store.run(_settle(rest, [file for file in files if file[0] not in answers], keep))
        answers |= others
    return answers


@operation(single=True, repeatable=True, hot=True, size=lambda done, keep: len(done))
def _succeed_unmarked(done: Sequence[Settlement], keep: Keep) -> Steps[None]:
    """Successes that nothing else must be told of, in one statement where the engine can. LeaseLost, and nothing is
    written, if one of them does not hold its job."""
    if not (yield from dialect()).moves_in_one_statement:
        yield from _succeed(done, (), keep).start()
        return
    rows = sorted((job.id, job.token, t.result) for job, t in done)
    (found,) = yield Call("succeed_remote", done=rows, keep=keep.succeeded, number=len(rows))
    if found.moved != len(rows):
        raise LeaseLost("not all of these attempts hold their jobs")


@operation(repeatable=True)
def _succeed(done: Sequence[Settlement], files: Sequence[File], keep: Keep) -> Steps[None]:
    """Successes without follow-ups, by the short way of `jobs.succeed`. LeaseLost undoes all of it if one of them was
    not applied."""
    if files:
        yield Call("set_result_files", named=files)
    linked = [job for job, _ in done if settle_jobs.is_linked(job)]
    if not (yield from settle_jobs.succeed([(job.id, job.token, t.result) for job, t in done], keep, linked).start()):
        raise LeaseLost("not all of these attempts hold their jobs")
    yield Call("outbox_heard", heard=sorted((job.id,) for job, _ in done))


@operation(repeatable=True)
def _settle(settlements: Sequence[Settlement], files: Sequence[File], keep: Keep) -> Steps[dict[str, Answer]]:
    """Results of any kind."""
    if files:
        yield Call("set_result_files", named=files)
    answers = yield from settle_under_fence(settlements, keep)
    applied = sorted(job_id for job_id, answer in answers.items() if answer == "applied")
    if applied:
        yield Call("outbox_heard", heard=[(job_id,) for job_id in applied])
    return answers
