"""Changes of jobs: of one, of a selection, of everything that fits. Many are previewed, then confirmed by a token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field

from rowlock.api.access import tokens
from rowlock.api.context import Acting, JobId, Service, Serving
from rowlock.api.operator.jobs import FilterShape, job_row, total
from rowlock.api.operator.route import REFUSED, existing, operator_router
from rowlock.api.problems import Refusal
from rowlock.api.schemas import Shape
from rowlock.store.audit import Actor
from rowlock.store.engine.ids import valid_id
from rowlock.store.jobs import bulk
from rowlock.store.read import job_rows
from rowlock.store.read.filter import JobFilter

Action = Literal["retry", "cancel", "runNow", "delete"]

router = operator_router()


class PreviewShape(Shape):
    """A change of many jobs, before it is made: of these ids, or of everything that fits."""

    action: Action
    ids: list[str] | None = Field(default=None, min_length=1, max_length=1000)
    filter: FilterShape | None = None


class ActShape(Shape):
    """A confirmed change."""

    token: str = Field(max_length=200)


@router.post("/jobs/preview", responses=REFUSED)
async def preview_change(service: Serving, actor: Acting, body: PreviewShape) -> dict[str, Any]:
    """How many jobs a change would change, and a token to confirm it with. What is confirmed is what was previewed:
    jobs that have changed since are left alone."""
    if (body.ids is None) == (body.filter is None):
        raise Refusal("INVALID_REQUEST", errors=[("filter", "give ids or a filter")])
    wanted = JobFilter() if body.filter is None else body.filter.read()
    ids = None if body.ids is None else [known for job_id in body.ids if (known := valid_id(job_id)) is not None]
    prepared = await service.look(bulk.prepare(body.action, wanted, ids))
    secret = tokens.new_secret()
    await service.run(bulk.remember(tokens.hash_of(secret), body.action, prepared, actor))
    sample = await service.look(job_rows.by_ids(prepared.sample)) if prepared.sample else []
    return {
        "token": secret,
        "action": body.action,
        "count": total(prepared.states.values()),
        "states": {str(state): one.count for state, one in prepared.states.items() if one.count},
        "sample": [job_row(service, job) for job in sample],
        "expiresAt": service.json(prepared.at + timedelta(seconds=bulk.PREVIEW_SECONDS)),
    }


@router.post("/jobs/act", responses=REFUSED)
async def carry_out_change(service: Serving, actor: Acting, body: ActShape) -> dict[str, Any]:
    """Change the next jobs of a previewed change; to be repeated until it is `done`. If the rows of some jobs
    could not be changed, `failed` names these jobs, and they stay as they are."""
    store = await service.client.store()
    done = await bulk.carry_on(store, tokens.hash_of(body.token), actor, service.client.keep)
    if done is None:
        raise Refusal("NOT_FOUND", "this change was never previewed, is done, or was previewed too long ago")
    answer = {"action": done.action, "looked": done.looked, "changed": done.changed, "done": done.done}
    failed = [{"jobId": job_id, "error": error} for job_id, error in done.failed.items()]
    return {**answer, "failed": failed} if failed else answer


@router.post("/jobs/{jobId}/retry", responses=REFUSED)
async def operator_retry(service: Serving, actor: Acting, job_id: JobId) -> dict[str, Any]:
    """Put a dead or cancelled job back in its queue."""
    return await _change_one(service, actor, "retry", job_id)


@router.post("/jobs/{jobId}/cancel", responses=REFUSED)
async def operator_cancel(service: Serving, actor: Acting, job_id: JobId) -> dict[str, Any]:
    """Cancel a waiting job, or ask the worker of a running one to stop it."""
    return await _change_one(service, actor, "cancel", job_id)


@router.post("/jobs/{jobId}/runNow", responses=REFUSED)
async def operator_run_now(service: Serving, actor: Acting, job_id: JobId) -> dict[str, Any]:
    """Let a job that waits for its time start now."""
    return await _change_one(service, actor, "runNow", job_id)


@router.post("/jobs/{jobId}/delete", responses=REFUSED)
async def operator_delete(service: Serving, actor: Acting, job_id: JobId) -> dict[str, Any]:
    """Delete a finished job."""
    return await _change_one(service, actor, "delete", job_id)


async def _change_one(service: Service, actor: Actor, action: Action, job_id: str) -> dict[str, Any]:
    job = existing(await service.run(job_rows.get(job_id)))
    verb = bulk.VERBS[action]
    if job.state not in verb.possible:
        states = " or ".join(verb.possible)
        raise Refusal("NOT_ALLOWED", f"the job is {job.state}; {action} is for jobs that are {states}")
    store = await service.client.store()
    changed, failed = await bulk.change_some(store, action, [job.id], service.client.keep, actor)
    if job.id in failed:
        raise Refusal("NOT_ALLOWED", f"the job stays as it is: {action} failed for its row: {failed[job.id]}")
    if job.id not in changed:
        raise Refusal("NOT_ALLOWED", f"the job stays as it is: {verb.otherwise}")
    return {"jobId": job.id, "changed": True, "answer": changed[job.id]}
