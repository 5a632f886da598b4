"""Routes for the owner of jobs: list, read, cancel, retry, explain. create.py has the one that creates them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Response

from rowlock.api import schemas
from rowlock.api.access import own_jobs
from rowlock.api.context import ActingOperator, JobId, Service, Serving, Who, api_router, must_change, tagged
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import NO_NUL, AttemptShape, CancelShape, CreatedShape, ExplainShape, JobPage, JobShape, Status
from rowlock.core.job import Job
from rowlock.store.engine.ids import valid_id
from rowlock.store.read import job_rows
from rowlock.store.read.explain import explain

DEEPEST = 10_000  # a numbered page cannot begin after this many jobs; cursors have no limit

router = api_router(prefix="/api/jobs", tags=["jobs"])


@router.get(
    "", response_model=JobPage, responses=documented("INVALID_CURSOR", "INVALID_REQUEST", "PAGE_TOO_DEEP", "FORBIDDEN")
)
async def list_jobs(
    service: Serving,
    asker: Who,
    page: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
    job_type: Annotated[str | None, Query(alias="jobType", max_length=200, pattern=NO_NUL)] = None,
    status: Status | None = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> JobPage:
    """The jobs of the token's owner, newest first, by page number or by the `nextCursor` of the previous page."""
    before = None if cursor is None else schemas.read_cursor(cursor)
    skip = 0 if before else page * size
    if skip > DEEPEST:
        raise Refusal("PAGE_TOO_DEEP", f"page numbers reach {DEEPEST:,} jobs; use cursor=nextCursor for more")
    if asker.job_id is not None:
        raise Refusal("FORBIDDEN", "this token can only read one job")
    states = tuple(state for state, word in schemas.STATUS.items() if word is status)
    wanted = own_jobs.page(asker.owner, job_type, states, size + 1, before, skip)
    found = await service.run(wanted)
    more = len(found) > size
    return JobPage(
        items=[JobShape.of(job, service.zone) for job in found[:size]],
        page=None if before else page,
        size=size,
        has_more=more,
        next_cursor=schemas.cursor_of(found[size - 1].id) if more else None,
    )


@router.get(
    "/{jobId}", response_model=JobShape, responses=documented("JOB_NOT_FOUND") | {304: {"description": "Not changed"}}
)
async def get_job(
    job_id: JobId, service: Serving, asker: Who, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """One job."""
    return shown(service, await service.job_of(asker, job_id), if_none_match)


@router.post(
    "/{jobId}/cancel",
    status_code=202,
    response_model=CancelShape,
    responses=documented("JOB_NOT_FOUND", "NOT_ALLOWED", "FORBIDDEN"),
)
async def cancel_job(job_id: JobId, service: Serving, asker: Who, operator: ActingOperator) -> CancelShape:
    """Cancel a waiting job at once, or ask the worker of a running job to stop it."""
    must_change(asker)
    answer = await service.run(own_jobs.cancel(asker.owner, job_id, service.client.keep, operator))
    if answer == "missing":
        raise Refusal("JOB_NOT_FOUND")
    if answer == "final":
        raise Refusal("NOT_ALLOWED", "the job has already ended")
    return CancelShape(job_id=valid_id(job_id) or job_id, status=answer.upper())


@router.post(
    "/{jobId}/retry",
    status_code=202,
    response_model=CreatedShape,
    responses=documented("JOB_NOT_FOUND", "NOT_ALLOWED", "FORBIDDEN"),
)
async def retry_job(job_id: JobId, service: Serving, asker: Who, operator: ActingOperator) -> CreatedShape:
    """Put a failed or cancelled job back in the queue, with one more try."""
    must_change(asker)
    answer = await service.run(own_jobs.retry(asker.owner, job_id, operator))
    if answer == "missing":
        raise Refusal("JOB_NOT_FOUND")
    if answer == "refused":
        raise Refusal("NOT_ALLOWED", "only failed and cancelled jobs can be retried, if no newer job holds their key")
    return CreatedShape(job_id=valid_id(job_id) or job_id)


@router.get("/{jobId}/explain", response_model=ExplainShape, responses=documented("JOB_NOT_FOUND"))
async def explain_job(job_id: JobId, service: Serving, asker: Who) -> ExplainShape:
    """Why a job is not running, and what it waits for."""
    job = await service.job_of(asker, job_id)
    found = await service.run(explain(job.id))
    if found is None:  # it was deleted meanwhile
        raise Refusal("JOB_NOT_FOUND")
    return schemas.explain_shape(found, service.zone)


@router.get("/{jobId}/attempts", response_model=list[AttemptShape], responses=documented("JOB_NOT_FOUND"))
async def list_attempts(job_id: JobId, service: Serving, asker: Who) -> list[AttemptShape]:
    """The attempts of a job that did not succeed, in order."""
    job = await service.job_of(asker, job_id)
    return [AttemptShape.of(attempt, service.zone) for attempt in await service.run(job_rows.attempts(job.id))]


def shown(service: Service, job: Job, known: str | None = None, headers: dict[str, str] | None = None) -> Response:
    body = JobShape.of(job, service.zone).model_dump_json(by_alias=True).encode()
    return tagged(body, known, {"Cache-Control": "private, no-cache", **(headers or {})})
