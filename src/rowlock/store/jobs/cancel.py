"""Cancel jobs: on request, or because they have not started by `expires_at`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from rowlock.core.policy import CANCELLED, Transition
from rowlock.core.states import Outcome, State
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.wake import wake_to_cancel
from rowlock.store.jobs.settle import Keep, attempt_row, finish

CancelAnswer = Literal["cancelled", "cancelling", "final", "missing"]


@operation()
def expire(n: int, keep: Keep, only: Collection[str] | None = None) -> Steps[int]:
    """Cancel up to `n` waiting jobs whose `expires_at` has passed; with `only`, just those of these jobs."""
    rows = [row for row in (yield Call("overdue", n=n)) if only is None or row.id in only]
    transition = Transition(
        State.CANCELLED,
        Outcome.CANCELLED,
        error_code=batches.EXPIRED,
        error_message="not started before expires_at",
    )
    if rows:
        touched = yield from finish({row.id: transition for row in rows}, keep)
        yield from batches.end(touched).start()
    return len(rows)


@operation()
def cancel(ids: Sequence[str], keep: Keep) -> Steps[dict[str, CancelAnswer]]:
    """Cancel waiting jobs at once, and jobs that run behind Redis; ask the workers of other running jobs to stop."""
    asked = [(job_id,) for job_id in sorted(set(ids))]
    answers: dict[str, CancelAnswer] = {job_id: "missing" for (job_id,) in asked}
    rows = yield Call("lock_jobs", asked=asked)
    # We can't stop a worker behind Redis, so its job ends right here, and its later messages are ignored.
    published = [row.id for row in rows if row.running and row.published]
    waiting = [row.id for row in rows if not row.running] + published
    running = [row for row in rows if row.running and not row.published]
    if published:
        yield Call("record_attempts", ended=[attempt_row(job_id, CANCELLED) for job_id in published])
        yield Call("outbox_heard", heard=[(job_id,) for job_id in published])
        yield Call("outbox_cancel", asked=[(job_id,) for job_id in published])
    if waiting:
        touched = yield from finish(dict.fromkeys(waiting, CANCELLED), keep)
        yield from batches.end(touched).start()
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
