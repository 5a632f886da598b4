"""What may be done to a job by somebody who may see only their own.

Every operation takes the owner first, so that none can be written without one. A job of another owner is answered as
one that does not exist. `EVERYONE` is the operator's owner: it sees all jobs, also those without an owner.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from rowlock.core.job import Attempt, Job
from rowlock.core.states import State
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.engine.operation import Steps, operation
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import retry as retries
from rowlock.store.jobs.cancel import CancelAnswer
from rowlock.store.jobs.transitions import Keep
from rowlock.store.read import job_rows, search
from rowlock.store.read.explain import Explanation
from rowlock.store.read.explain import explain as explain_job
from rowlock.store.read.filter import JobFilter


class Everyone(Enum):
    """The owner of an operator's question."""

    EVERYONE = "everyone"


EVERYONE = Everyone.EVERYONE
Owner = str | Everyone


@operation(read=True, hot=True, size=lambda owner, job_id: 1)
def get(owner: Owner, job_id: str) -> Steps[Job | None]:
    """The job, if it is the owner's."""
    job = yield from job_rows.get(job_id).start()
    return job if job is not None and _may_see(owner, job) else None


@operation(read=True, hot=True)
def page(
    owner: Owner, task: str | None, states: tuple[State, ...], limit: int, before: str | None = None, skip: int = 0
) -> Steps[list[Job]]:
    """The owner's newest jobs that fit: after the first `skip`, or older than the job `before`."""
    wanted = JobFilter(states=states, task=task, owner=None if owner is EVERYONE else owner)
    ids = yield from search.newest_ids(wanted, skip + limit, before).start()
    return (yield from job_rows.by_ids(ids[skip:]).start()) if ids[skip:] else []


@operation(read=True)
def attempts(owner: Owner, job_id: str) -> Steps[list[Attempt] | None]:
    """The attempts that did not succeed, in order; None when the job is not the owner's."""
    job = yield from get(owner, job_id).start()
    return (yield from job_rows.attempts(job_id).start()) if job is not None else None


@operation(read=True)
def explain(owner: Owner, job_id: str) -> Steps[Explanation | None]:
    """Why the job is not running; None when it is not the owner's."""
    job = yield from get(owner, job_id).start()
    return (yield from explain_job(job_id).start()) if job is not None else None


@operation()
def cancel(owner: Owner, job_id: str, keep: Keep, operator: Actor | None = None) -> Steps[CancelAnswer]:
    """Cancel the job, or ask its worker to stop it. What an operator cancels is in the audit."""
    job = yield from get(owner, job_id).start()
    if job is None:
        return "missing"
    answer = (yield from cancels.cancel([job.id], keep).start())[job.id]
    if operator is not None and answer not in ("missing", "final"):
        yield from audit.write(operator, "jobs.cancel", job.id)
    return answer


@operation()
def retry(owner: Owner, job_id: str, operator: Actor | None = None) -> Steps[Literal["retried", "refused", "missing"]]:
    """Put a dead or cancelled job back in the queue. What an operator retries is in the audit."""
    job = yield from get(owner, job_id).start()
    if job is None:
        return "missing"
    if not (yield from retries.retry([job.id], 1).start()):
        return "refused"
    if operator is not None:
        yield from audit.write(operator, "jobs.retry", job.id)
    return "retried"


def _may_see(owner: Owner, job: Job) -> bool:
    return owner is EVERYONE or (job.owner is not None and job.owner == owner)
