"""What workers behind Redis report: progress and results, each written under the lease of the attempt it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowlock.core.job import Claimed, Settlement
from rowlock.core.states import State
from rowlock.store.engines.operation import Call, Steps, operation
from rowlock.store.jobs import Answer, Keep, settle_under_fence


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
    rows = (yield Call("other_states", asked=rest)) if rest else []
    return Known(held, {row.id: Standing(row.task, State(row.state)) for row in rows})


@operation(repeatable=True)
def hear(told: Sequence[tuple[str, str, int, str | None, str | None]], lease: float) -> Steps[set[str]]:
    """Store progress (id, token, progress, phase, message); answers the jobs whose lease holds."""
    rows = yield Call("hear", told=told, lease=lease)
    heard = {row.id for row in rows}
    if heard:
        yield Call("outbox_heard", heard=[(job_id,) for job_id in sorted(heard)])
    return heard


@operation(repeatable=True)
def settle(
    settlements: Sequence[Settlement], files: Sequence[tuple[str, str, str, str]], keep: Keep
) -> Steps[dict[str, Answer]]:
    """Write results under the fence, with the files (id, token, uri, checksum) that they name."""
    if files:
        yield Call("set_result_files", named=files)
    answers = yield from settle_under_fence(settlements, keep)
    applied = sorted(job_id for job_id, answer in answers.items() if answer == "applied")
    if applied:
        yield Call("outbox_heard", heard=[(job_id,) for job_id in applied])
    return answers
