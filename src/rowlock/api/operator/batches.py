"""Batches: list, look at, cancel."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from rowlock.api.operator.common import (
    NOT_FOUND,
    REFUSED,
    Acting,
    Limit,
    Rows,
    Text,
    operator_router,
    record,
    refusing,
    rows,
)
from rowlock.api.problems import Refusal
from rowlock.api.service import Serving
from rowlock.store import audit, batches
from rowlock.store.ids import valid_id
from rowlock.store.reads import LAST_ID

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
    return rows(found, service.zone)


@router.get("/batches/{batchId}", responses=NOT_FOUND)
async def get_batch(service: Serving, batch_id: BatchId) -> dict[str, Any]:
    """One batch; its jobs are listed by `jobs?batch=`."""
    found = await service.look(batches.get(batch_id)) if valid_id(batch_id) else None
    if found is None:
        raise Refusal("NOT_FOUND")
    return record(found, service.zone)


@router.post("/batches/{batchId}/cancel", status_code=202, responses=REFUSED)
async def cancel_batch(service: Serving, actor: Acting, batch_id: BatchId) -> dict[str, Any]:
    """Cancel what is left of a batch; running jobs are asked to stop."""
    with refusing():
        batch = await service.client.find_batch(batch_id)
        await batch.cancel()
        await service.run(audit.write_alone(actor, "batches.cancel", batch.id, {"name": batch.name}))
        return record((await batch.refresh()).record, service.zone)
