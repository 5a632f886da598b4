"""Batches: list, look at, cancel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Path, Query

from rowlock.api.context import Acting, Service, Serving
from rowlock.api.operator.jobs import job_link
from rowlock.api.operator.route import NOT_FOUND, REFUSED, Limit, Rows, Text, operator_router
from rowlock.api.problems import Refusal
from rowlock.client.handles.batch import cancel_audited
from rowlock.store import batches
from rowlock.store.batches import BatchRow
from rowlock.store.engine.ids import valid_id
from rowlock.store.read import relatives, search
from rowlock.store.read.filter import LAST_ID, JobFilter
from rowlock.store.read.relatives import Relative, Relatives

router = operator_router()
BatchId = Annotated[str, Path(alias="batchId", max_length=100)]


@router.get("/batches")
async def list_batches(
    service: Serving,
    limit: Limit = 50,
    before: Annotated[str, Query(max_length=100)] = LAST_ID,
    owner: Text = None,
) -> Rows:
    """Batches, newest first; for the next page give the last one's id as `before`."""
    if valid_id(before) is None:
        raise Refusal("INVALID_REQUEST", errors=[("before", "must be the id of a batch")])
    found = await service.look(batches.newest(limit, before, owner))
    return Rows(items=[service.record(batch) for batch in found])


@router.get("/batches/{batchId}", responses=NOT_FOUND)
async def get_batch(service: Serving, batch_id: BatchId) -> dict[str, Any]:
    """One batch; its jobs are listed by `jobs?batch=`."""
    return service.record(await _batch(service, batch_id))


@router.get("/batches/{batchId}/tree", responses=NOT_FOUND)
async def batch_tree(service: Serving, batch_id: BatchId) -> dict[str, Any]:
    """A batch, what led to it and what came of it: the job that made it, how many of its jobs are in each state, the
    job of its end, and all of them as nodes with their parents while there are fewer than 200."""
    batch = await _batch(service, batch_id)
    maker, last = await _job(service, batch.parent_id), await _job(service, batch.end_job)
    counts = await service.look(search.count(JobFilter(batch=batch.id)))
    related = await service.look(relatives.of_batch(batch.id))
    return {
        "batch": service.record(batch),
        "parent": None if maker is None else job_link(maker),
        "onEnd": None if last is None else job_link(last),
        "states": {str(state): {"count": one.count, "exact": one.exact} for state, one in counts.items()},
        "nodes": None if related is None else list(_nodes(related, maker, last)),
    }


async def _batch(service: Service, batch_id: str) -> BatchRow:
    found = await service.look(batches.get(batch_id)) if valid_id(batch_id) else None
    if found is None:
        raise Refusal("NOT_FOUND")
    return found


async def _job(service: Service, job_id: str | None) -> Relative | None:
    if job_id is None:
        return None
    found: Relative = await service.look(relatives.link(job_id))
    return found


def _nodes(related: Relatives, maker: Relative | None, last: Relative | None) -> Iterator[dict[str, Any]]:
    """Each job once, with what it is to the batch."""
    seen = set[str]()
    kinds = (("parent", [maker]), ("onEnd", [last]), ("job", related.members), ("child", related.children))
    for kind, jobs in kinds:
        for job in jobs:
            if job is not None and job.id not in seen:
                seen.add(job.id)
                yield job_link(job) | {"parentId": job.parent_id, "kind": kind}


@router.post("/batches/{batchId}/cancel", status_code=202, responses=REFUSED)
async def cancel_batch(service: Serving, actor: Acting, batch_id: BatchId) -> dict[str, Any]:
    """Cancel what is left of a batch; running jobs are asked to stop."""
    cancelled = await cancel_audited(await service.client.find_batch(batch_id), actor)
    return service.record(cancelled)
