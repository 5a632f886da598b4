"""Tasks with the shape of their arguments, new jobs of them, and a finished job run again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from rowlock.api.context import Acting, JobId, Service, Serving
from rowlock.api.operator.route import NOT_FOUND, REFUSED, Name, Rows, Word, existing, operator_router
from rowlock.api.problems import Refusal
from rowlock.api.schemas import Shape
from rowlock.client.tasks.registry import any_task
from rowlock.core.errors import InvalidArguments
from rowlock.store import audit, workers
from rowlock.store.jobs import tasks
from rowlock.store.jobs.tasks import StoredTask
from rowlock.store.read import job_rows

router = operator_router()


class NewOperatorJob(Shape):
    """A job to create."""

    task: Word
    args: dict[str, Any] = Field(default_factory=dict)
    queue: Word | None = None
    priority: int | None = Field(default=None, ge=-100, le=100)
    owner: Word | None = None
    source: Word | None = None
    key: Word | None = None
    tags: list[Word] | None = Field(default=None, max_length=50)
    run_after: datetime | None = None
    delay_seconds: float | None = Field(default=None, ge=0)


class AgainShape(Shape):
    """A finished job to run again; without arguments, with its own."""

    args: dict[str, Any] | None = None


@router.get("/tasks")
async def list_tasks(service: Serving) -> Rows:
    """The tasks that workers have registered, with the shape of their arguments."""
    found = await service.look(tasks.listed())
    living = await _living(service)
    return Rows(items=[_shown(task, task.name in living, service) for task in found])


@router.get("/tasks/{name:path}", responses=NOT_FOUND)
async def get_task(service: Serving, name: Name) -> dict[str, Any]:
    """One task."""
    found = await service.look(tasks.find(name))
    if found is None:
        raise Refusal("NOT_FOUND", f"no worker has registered a task named {name!r}")
    return _shown(found, name in await _living(service), service)


@router.post("/jobs", status_code=201, responses=REFUSED)
async def create_operator_job(service: Serving, actor: Acting, body: NewOperatorJob) -> dict[str, Any]:
    """Create a job of any task that a worker has registered."""
    given = body.model_dump(exclude={"task", "args", "delay_seconds"}, exclude_none=True)
    if body.delay_seconds is not None:
        given["delay"] = body.delay_seconds
    return await _create(service, actor, body.task, body.args, given, {})


@router.post("/jobs/{jobId}/again", status_code=201, responses=REFUSED)
async def run_again(service: Serving, actor: Acting, job_id: JobId, body: AgainShape | None = None) -> dict[str, Any]:
    """Create a job like a finished one, with its options and with these arguments or its own."""
    job = existing(await service.run(job_rows.get(job_id)))
    if not job.final:
        raise Refusal("NOT_ALLOWED", f"the job is {job.state}: it has not finished")
    given: dict[str, Any] = {"queue": job.queue, "priority": job.priority, "tags": list(job.tags)}
    given |= {name: value for name in ("owner", "source") if (value := getattr(job, name)) is not None}
    args = job.args if body is None or body.args is None else body.args
    return await _create(service, actor, job.task, args, given, {"again": job.id})


async def _create(
    service: Service, actor: audit.Actor, name: str, args: Any, given: dict[str, Any], details: dict[str, Any]
) -> dict[str, Any]:
    if not isinstance(args, dict):
        raise InvalidArguments("the arguments must be an object")
    task = await any_task(service.client, name, given.get("source"), args)
    async with service.client.transaction() as transaction:  # both or neither
        job = await task.using(**given).enqueue(**args)
        if job.created:  # else a job with this key was there already
            await transaction.run(audit.write_alone(actor, "jobs.create", job.id, {"task": name, **details}))
    return {"jobId": job.id, "created": job.created}


async def _living(service: Service) -> set[str]:
    return {name for worker in await service.look(workers.workers()) if worker.alive for name in worker.tasks}


def _shown(task: StoredTask, alive: bool, service: Service) -> dict[str, Any]:
    why_not = "its source is derived from its arguments by its code: name a source" if task.source_derived else None
    return {
        "name": task.name,
        "options": task.options,
        "schema": task.arguments,
        "description": task.description,
        "alive": alive,
        "creatable": True,
        "whyNot": why_not,
        "updatedAt": service.json(task.updated_at),
    }
