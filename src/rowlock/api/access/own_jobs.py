"""What an owner may do with their own jobs.

Every operation takes the owner first, so that none can be written without one. A job of another owner is treated as one
that does not exist. `EVERYONE` is the operator's owner: it sees all jobs, and those without an owner.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from rowlock.core.job import Job
from rowlock.core.states import State
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.engine.operation import Steps, operation
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import retry as retries
from rowlock.store.jobs.cancel import CancelAnswer
from rowlock.store.jobs.settle import Keep
from rowlock.store.read import job_rows, search
from rowlock.store.read.filter import JobFilter


class Everyone(Enum):
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


@operation()
def cancel(owner: Owner, job_id: str, keep: Keep, operator: Actor | None = None) -> Steps[CancelAnswer]:
    """Cancel the job, or ask its worker to stop it. An operator's cancel is in the audit."""
    job = yield from get(owner, job_id).start()
    if job is None:
        return "missing"
    answer = (yield from cancels.cancel([job.id], keep).start())[job.id]
    if operator is not None and answer not in ("missing", "final"):
        yield from audit.write(operator, "jobs.cancel", job.id)
    return answer


@operation()
def retry(owner: Owner, job_id: str, operator: Actor | None = None) -> Steps[Literal["retried", "refused", "missing"]]:
    """Put a dead or cancelled job back in the queue. An operator's retry is in the audit."""
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
