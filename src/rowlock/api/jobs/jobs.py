"""Routes for the owner of jobs: list, read, cancel, retry, explain; and create, with limits for each owner, an
Idempotency-Key, a webhook, and a wait for the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from fastapi import Header, Query, Request, Response
from fastapi.responses import JSONResponse

from rowlock.api import schemas
from rowlock.api.access import idempotency, own_jobs, tokens
from rowlock.api.access.sender import Asker
from rowlock.api.context import ActingOperator, JobId, Service, Serving, Who, api_router, must_change, tagged
from rowlock.api.jobs import webhooks
from rowlock.api.jobs.delivery import accepted
from rowlock.api.jobs.webhooks import Webhook
from rowlock.api.problems import Refusal, documented
from rowlock.core.errors import InvalidArguments, JobNotFound, StoreError
from rowlock.core.job import Job
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.engine.ids import new_id, valid_id
from rowlock.store.read import job_rows
from rowlock.store.read.explain import explain

DEEPEST = 10_000  # a numbered page cannot begin after this many jobs; cursors have no limit
LONGEST_WAIT = 30.0  # the longest `Prefer: wait`
WATCH_SECONDS = 3600.0
KEY_SECONDS = 86_400.0  # how long an Idempotency-Key is remembered
IN_FLIGHT_SECONDS = 30.0  # a request whose server died holds its key this long
CROWDED = 1_000  # an owner with room for fewer jobs than this has them counted one by one

router = api_router(prefix="/api/jobs", tags=["jobs"])


@router.get("", responses=documented("INVALID_CURSOR", "INVALID_REQUEST", "PAGE_TOO_DEEP", "FORBIDDEN"))
async def list_jobs(
    service: Serving,
    asker: Who,
    page: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
    job_type: Annotated[str | None, Query(alias="jobType", max_length=200, pattern=schemas.NO_NUL)] = None,
    status: schemas.Status | None = None,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> schemas.JobPage:
    """The jobs of the token's owner, newest first, by page number or by the `nextCursor` of the previous page."""
    before = None if cursor is None else schemas.read_cursor(cursor)
    skip = 0 if before else page * size
    if skip > DEEPEST:
        raise Refusal("PAGE_TOO_DEEP", f"page numbers reach {DEEPEST:,} jobs; use cursor=nextCursor for more")
    if asker.job_id is not None:
        raise Refusal("FORBIDDEN", "this token can only read one job")
    states = tuple(state for state, word in schemas.STATUS.items() if word is status)
    found = await service.run(own_jobs.page(asker.owner, job_type, states, size + 1, before, skip))
    more = len(found) > size
    return schemas.JobPage(
        items=[schemas.JobShape.of(job, service.zone) for job in found[:size]],
        page=None if before else page,
        size=size,
        has_more=more,
        next_cursor=schemas.cursor_of(found[size - 1].id) if more else None,
    )


@router.get(
    "/{jobId}",
    response_model=schemas.JobShape,
    responses=documented("JOB_NOT_FOUND") | {304: {"description": "Not changed"}},
)
async def get_job(
    job_id: JobId, service: Serving, asker: Who, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """One job."""
    return shown(service, await service.job_of(asker, job_id), if_none_match)


@router.post("/{jobId}/cancel", status_code=202, responses=documented("JOB_NOT_FOUND", "NOT_ALLOWED", "FORBIDDEN"))
async def cancel_job(job_id: JobId, service: Serving, asker: Who, operator: ActingOperator) -> schemas.CancelShape:
    """Cancel a waiting job at once, or ask the worker of a running job to stop it."""
    must_change(asker)
    answer = await service.run(own_jobs.cancel(asker.owner, job_id, service.client.keep, operator))
    if answer == "missing":
        raise Refusal("JOB_NOT_FOUND")
    if answer == "final":
        raise Refusal("NOT_ALLOWED", "the job has already ended")
    return schemas.CancelShape(job_id=valid_id(job_id) or job_id, status=answer.upper())


@router.post("/{jobId}/retry", status_code=202, responses=documented("JOB_NOT_FOUND", "NOT_ALLOWED", "FORBIDDEN"))
async def retry_job(job_id: JobId, service: Serving, asker: Who, operator: ActingOperator) -> schemas.CreatedShape:
    """Put a failed or cancelled job back in the queue, with one more try."""
    must_change(asker)
    answer = await service.run(own_jobs.retry(asker.owner, job_id, operator))
    if answer == "missing":
        raise Refusal("JOB_NOT_FOUND")
    if answer == "refused":
        raise Refusal("NOT_ALLOWED", "only failed and cancelled jobs can be retried, if no newer job holds their key")
    return schemas.CreatedShape(job_id=valid_id(job_id) or job_id)


@router.get("/{jobId}/explain", responses=documented("JOB_NOT_FOUND"))
async def explain_job(job_id: JobId, service: Serving, asker: Who) -> schemas.ExplainShape:
    """Why a job is not running, and what it waits for."""
    job = await service.job_of(asker, job_id)
    found = await service.run(explain(job.id))
    if found is None:  # it was deleted meanwhile
        raise Refusal("JOB_NOT_FOUND")
    # Owners see no names of workers, and no jobs of other owners.
    text = found.text.replace(f"Worker {found.held_by} has", "A worker has")
    if found.named:
        text = text.replace(found.named, "")
    return schemas.ExplainShape.of(replace(found, text=text), service.zone)


@router.get("/{jobId}/attempts", responses=documented("JOB_NOT_FOUND"))
async def list_attempts(job_id: JobId, service: Serving, asker: Who) -> list[schemas.AttemptShape]:
    """The attempts of a job that did not succeed, in order."""
    job = await service.job_of(asker, job_id)
    return [schemas.AttemptShape.of(attempt, service.zone) for attempt in await service.run(job_rows.attempts(job.id))]


def shown(service: Service, job: Job, known: str | None = None, headers: dict[str, str] | None = None) -> Response:
    body = schemas.JobShape.of(job, service.zone).model_dump_json(by_alias=True).encode()
    return tagged(body, known, {"Cache-Control": "private, no-cache", **(headers or {})})


# --- create


@router.post(
    "",
    status_code=202,
    response_model=schemas.CreatedShape,
    responses=documented(
        *("INVALID_JSON", "INVALID_REQUEST", "INVALID_ARGUMENTS", "TASK_NOT_FOUND", "FORBIDDEN", "IN_FLIGHT"),
        *("KEY_REUSED", "TOO_MANY_JOBS", "BODY_TOO_LARGE", "REQUEST_TIMEOUT", "REPEATED_NAME"),
        *("WEBHOOKS_OFF", "WEBHOOK_REFUSED", "NO_WEBHOOK_SECRET"),
    )
    | {200: {"model": schemas.JobShape, "description": "With Prefer: wait, the job has ended"}},
)
async def create_job(
    request: Request,
    body: schemas.NewJobShape,
    service: Serving,
    asker: Who,
    operator: ActingOperator,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    prefer: Annotated[str | None, Header(max_length=200, examples=["wait=10"])] = None,
) -> Response:
    """Create a job of a public task. The answer comes at once; with `Prefer: wait=10`, when the job has ended or after
    ten seconds. For a day, a request with the same `Idempotency-Key` and body returns the job of the first one."""
    must_change(asker)
    task = service.client.registry.all().get(body.job_type)
    if task is None or not task.options.public:
        raise Refusal("TASK_NOT_FOUND", f"no public task is named {body.job_type!r:.250}")
    _check_depth(body.args, service.settings.argument_depth)
    owner = asker.owner_name
    with service.creating(asker.owner) as others:
        crowded = owner is not None and await _is_crowded(service, owner, others)
        webhook = None if body.webhook is None else await accepted(service, owner, body.webhook)
        new = _New(task, body, owner, webhook, crowded, operator)
        job_id = await _create_once(service, new, idempotency_key)
    wait = _wait_of(prefer)
    applied = {} if wait is None else {"Preference-Applied": f"wait={wait:g}"}
    if wait is not None and (job := await _ended(service, asker, job_id, wait)) is not None:
        return shown(service, job, headers=applied)
    watch = None
    if body.watch and owner is not None:
        watch = tokens.new_secret()
        await service.run(tokens.create(watch, owner, "jobs", WATCH_SECONDS, job_id))
    headers = {"Location": str(request.url_for("get_job", jobId=job_id).path), "Retry-After": "1", **applied}
    answer = schemas.CreatedShape(job_id=job_id, watch_token=watch)
    return JSONResponse(answer.model_dump(by_alias=True, exclude_none=True), 202, headers)


class _New(NamedTuple):
    task: Any
    body: schemas.NewJobShape
    owner: str | None
    webhook: Webhook | None
    crowded: bool  # whether its owner's jobs must be counted again in the transaction that creates it
    operator: Actor | None  # who creates it, if that is not an owner: for the audit


async def _is_crowded(service: Service, owner: str, others: int) -> bool:
    """Refuse a job that its owner has no room for. True if there is little room left: then each job is counted in the
    transaction that creates it, one after the other in all servers, and none slips through. `others` are requests of
    the owner that create a job in this server at this moment."""
    most = service.settings.jobs_per_owner
    unfinished = await service.run(idempotency.unfinished(owner, most))
    _check_room(unfinished, most)
    return unfinished + others >= most - CROWDED


def _check_room(unfinished: int, most: int) -> None:
    if unfinished >= most:
        raise Refusal("TOO_MANY_JOBS", f"at most {most:,} jobs may wait or run", headers={"Retry-After": "60"})


async def _create_once(service: Service, new: _New, key: str | None) -> str:
    """Create the job, or find the job that an earlier request with the same Idempotency-Key created."""
    if key is None:
        return await _create(service, new)
    body_hash = hashlib.sha256(json.dumps(new.body.model_dump(), sort_keys=True).encode()).hexdigest()
    request = idempotency.Begun(new.owner or "", key, new_id())
    earlier = await service.run(idempotency.earlier(request.owner, key))
    if earlier is None:
        earlier = await service.run(idempotency.begin(request, body_hash, KEY_SECONDS, IN_FLIGHT_SECONDS))
    if earlier is not None:
        if earlier.body_hash != body_hash:
            raise Refusal("KEY_REUSED", "give each new job a new Idempotency-Key")
        if earlier.job_id is None:
            raise Refusal("IN_FLIGHT", headers={"Retry-After": "1"})
        return earlier.job_id
    try:
        return await _create(service, new, request)
    except BaseException:
        with contextlib.suppress(StoreError):  # if this fails, the key becomes free after IN_FLIGHT_SECONDS
            await service.run(idempotency.forget(request))
        raise


async def _create(service: Service, new: _New, request: idempotency.Begun | None = None) -> str:
    """Create the job, its webhook, the record of its Idempotency-Key and an operator's audit entry in one
    transaction."""
    if new.webhook is None and request is None and not new.crowded and new.operator is None:
        return await _enqueue(new)
    most = service.settings.jobs_per_owner
    async with service.client.transaction() as transaction:
        if new.crowded and new.owner is not None:
            _check_room(await transaction.run(idempotency.unfinished_alone(new.owner, most)), most)
        job_id = await _enqueue(new)
        if new.webhook is not None and new.owner is not None:
            await transaction.run(webhooks.add(job_id, new.owner, new.webhook))
        if new.operator is not None:
            await transaction.run(audit.write_alone(new.operator, "jobs.create", job_id, {"task": new.task.name}))
        if request is not None and not await transaction.run(idempotency.end(request, job_id)):
            # This request took longer than IN_FLIGHT_SECONDS, and another one has taken its key.
            raise Refusal("IN_FLIGHT", headers={"Retry-After": "1"})
    return job_id


async def _enqueue(new: _New) -> str:
    try:
        handle = await new.task.using(owner=new.owner).enqueue(**new.body.args)
    except InvalidArguments as error:
        errors = [(f"args.{field}", message) for field, message in error.fields]
        raise Refusal("INVALID_ARGUMENTS", str(error), errors=errors) from None
    return str(handle.id)


async def _ended(service: Service, asker: Asker, job_id: str, seconds: float) -> Job | None:
    try:
        handle = await service.client.job(job_id)
        await handle.wait(timeout=seconds)
    except (TimeoutError, JobNotFound):  # retention may have removed the job that an earlier request created
        return None
    except Exception:
        pass  # the job failed or was cancelled: the answer shows it
    return await service.job_of(asker, job_id)


def _wait_of(prefer: str | None) -> float | None:
    """The seconds of `Prefer: wait=N` (RFC 7240)."""
    for part in (prefer or "").split(","):
        name, _, value = part.partition("=")
        if name.strip().lower() == "wait" and value.strip().isdecimal():
            return min(float(value), LONGEST_WAIT)
    return None


def _check_depth(value: Any, most: int, depth: int = 0) -> None:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if depth > most:
        raise Refusal("INVALID_ARGUMENTS", f"arguments may be nested at most {most} levels deep")
    for item in inner:
        _check_depth(item, most, depth + 1)
