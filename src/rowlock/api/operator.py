"""Routes of operators: queues, workers, sources, schedules, batches and numbers, with the verbs of the command line.

An operator's token opens them, one of scope `operator:read` only for GET. Records come as the library has them, with
their names in camelCase.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from pydantic.alias_generators import to_camel

from rowlock.api.problems import Refusal, documented
from rowlock.api.service import Serving, Who
from rowlock.api.shapes import NO_NUL, Shape
from rowlock.core.errors import BatchNotFound, InvalidArguments, NotAllowed, ScheduleNotFound
from rowlock.store import batches, reads, workers
from rowlock.store.explain import unknown_tasks
from rowlock.store.ids import valid_id

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
READS = ("GET", "HEAD")


async def _operators_only(request: Request, asker: Who) -> None:
    """Before any of these routes: an operator, and for a change one who may change."""
    if not asker.is_operator:
        raise Refusal("FORBIDDEN", "this needs an operator's token: rowlock tokens create --scope operator")
    if request.method not in READS and not asker.may_change:
        raise Refusal("FORBIDDEN", "this token can only read")


router = APIRouter(
    prefix="/api/operator",
    tags=["operator"],
    dependencies=[Depends(_operators_only)],
    responses=documented("FORBIDDEN", "INVALID_REQUEST"),
)
Limit = Annotated[int, Query(ge=1, le=1000)]
Name = Annotated[str, Path(min_length=1, max_length=200, pattern=NO_NUL)]
BatchId = Annotated[str, Path(alias="batchId", max_length=100)]
NOT_FOUND = documented("NOT_FOUND")
REFUSED = documented("NOT_FOUND", "NOT_ALLOWED", "INVALID_ARGUMENTS")


class Rows(Shape):
    """Records of one kind."""

    items: list[dict[str, Any]]


class Limits(Shape):
    """Settings of a source or of a class of sources; what is not named stays, null takes a setting back."""

    concurrency: int | None = Field(default=None, ge=0)
    total: int | None = Field(default=None, ge=0)
    rate: str | None = Field(default=None, max_length=50, examples=["30/min"])
    burst: int | None = Field(default=None, ge=1)
    threshold: int | None = Field(default=None, ge=1)
    cooldown: float | None = Field(default=None, gt=0, description="Seconds")
    factor: float | None = Field(default=None, ge=1)
    block_after: int | None = Field(default=None, ge=1)


class Pause(Shape):
    """How long to pause; without it until resumed."""

    seconds: float | None = Field(default=None, gt=0)


# --- looking


@router.get("/stats")
async def stats(service: Serving) -> dict[str, Any]:
    """How queues, workers and the last minutes stand, and which waiting jobs nobody can run."""
    found = _record(await service.run(reads.stats()), service.zone)
    waiting = await service.run(unknown_tasks())
    unknown = [{"queue": queue, "task": task, "waiting": count} for queue, task, count in waiting]
    return {**found, "unknownTasks": unknown}


@router.get("/queues")
async def queues(service: Serving) -> Rows:
    """Queues, and how many jobs wait and run in each."""
    return _rows((await service.run(reads.stats())).queues, service.zone)


@router.get("/workers")
async def list_workers(service: Serving) -> Rows:
    """Workers, living ones first."""
    found = await service.run(workers.workers())
    return _rows(found, service.zone)


@router.get("/sources")
async def list_sources(
    service: Serving, limit: Limit = 100, after: Annotated[str, Query(max_length=200, pattern=NO_NUL)] = ""
) -> Rows:
    """Sources and their classes by name: limits, running jobs, breaker."""
    return _rows(await service.client.sources.list(limit, after=after), service.zone)


@router.get("/schedules")
async def list_schedules(
    service: Serving, limit: Limit = 100, after: Annotated[str, Query(max_length=200, pattern=NO_NUL)] = ""
) -> Rows:
    """Schedules by name."""
    return _rows(await service.client.schedules.list(limit, after=after), service.zone)


@router.get("/batches")
async def list_batches(
    service: Serving,
    limit: Limit = 50,
    before: Annotated[str, Query(max_length=100)] = LAST_ID,
    owner: Annotated[str | None, Query(max_length=200, pattern=NO_NUL)] = None,
) -> Rows:
    """Batches, newest first; for the next page give the last one's id as `before`."""
    if valid_id(before) is None:
        raise Refusal("INVALID_REQUEST", errors=[("before", "must be the id of a batch")])
    found = await service.run(batches.newest(limit, before, owner))
    return _rows(found, service.zone)


@router.get("/batches/{batchId}", responses=NOT_FOUND)
async def get_batch(service: Serving, batch_id: BatchId) -> dict[str, Any]:
    """One batch."""
    found = await service.run(batches.get(batch_id)) if valid_id(batch_id) else None
    if found is None:
        raise Refusal("NOT_FOUND")
    return _record(found, service.zone)


# --- acting


@router.post("/queues/{name}/pause", status_code=204)
async def pause_queue(service: Serving, name: Name) -> None:
    """Claim no more jobs of a queue; running ones go on."""
    await service.run(workers.pause_queue(name))


@router.post("/queues/{name}/resume", status_code=204)
async def resume_queue(service: Serving, name: Name) -> None:
    """Claim jobs of a queue again."""
    await service.run(workers.resume_queue(name))


@router.post("/sources/{name}", responses=REFUSED)
async def set_source(service: Serving, name: Name, limits: Limits) -> dict[str, Any]:
    """Limit a source, or every source of a class. Running workers heed it at once."""
    changes = limits.model_dump(exclude_unset=True)
    with _refusing():
        return _record(await service.client.sources.set(name, **changes), service.zone)


@router.post("/sources/{name}/pause", responses=REFUSED)
async def pause_source(service: Serving, name: Name, pause: Pause | None = None) -> dict[str, Any]:
    """Start no more jobs of a source."""
    with _refusing():
        return _record(await service.client.sources.pause(name, pause.seconds if pause else None), service.zone)


@router.post("/sources/{name}/resume", responses=REFUSED)
async def resume_source(service: Serving, name: Name) -> dict[str, Any]:
    """Start jobs of a source again, with a closed breaker."""
    with _refusing():
        return _record(await service.client.sources.resume(name), service.zone)


@router.post("/schedules/{name}/run", status_code=202, responses=REFUSED)
async def run_schedule(service: Serving, name: Name) -> dict[str, Any]:
    """Fire a schedule now, beside its ticks."""
    with _refusing():
        return {"jobId": (await service.client.schedules.run(name)).id}


@router.post("/schedules/{name}/pause", responses=REFUSED)
async def pause_schedule(service: Serving, name: Name) -> dict[str, Any]:
    """Fire no more ticks of a schedule."""
    with _refusing():
        return _record(await service.client.schedules.pause(name), service.zone)


@router.post("/schedules/{name}/resume", responses=REFUSED)
async def resume_schedule(service: Serving, name: Name) -> dict[str, Any]:
    """Fire ticks of a schedule again."""
    with _refusing():
        return _record(await service.client.schedules.resume(name), service.zone)


@router.post("/batches/{batchId}/cancel", status_code=202, responses=REFUSED)
async def cancel_batch(service: Serving, batch_id: BatchId) -> dict[str, Any]:
    """Cancel what is left of a batch; running jobs are asked to stop."""
    with _refusing():
        batch = await service.client.find_batch(batch_id)
        await batch.cancel()
        return _record((await batch.refresh()).record, service.zone)


# --- records as JSON


class _refusing:
    """What the library refuses, as problems."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, (BatchNotFound, ScheduleNotFound)):
            raise Refusal("NOT_FOUND", str(error)) from None
        if isinstance(error, (InvalidArguments, NotAllowed)):
            raise Refusal("NOT_ALLOWED" if isinstance(error, NotAllowed) else "INVALID_ARGUMENTS", str(error)) from None


def _rows(records: Iterable[Any], zone: ZoneInfo) -> Rows:
    return Rows(items=[_record(record, zone) for record in records])


def _record(record: Any, zone: ZoneInfo) -> dict[str, Any]:
    """A record as a JSON object."""
    found: dict[str, Any] = _plain(record, zone)
    return found


def _plain(value: Any, zone: ZoneInfo) -> Any:
    """A record as JSON: camelCase names, times in the zone of the API."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {to_camel(name): _plain(inner, zone) for name, inner in fields.items()}
    if isinstance(value, datetime):
        return value.astimezone(zone).isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, zone) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner, zone) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
