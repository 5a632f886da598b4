"""What operators did."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rowlock.api.operator.common import Rows, operator_router, rows
from rowlock.api.service import Serving
from rowlock.store import audit

router = operator_router()


@router.get("/audit")
async def list_audit(
    service: Serving,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int, Query(ge=1, le=audit.NEWEST)] = audit.NEWEST,
) -> Rows:
    """What was done by the command line and through the API, newest first."""
    found = await service.look(audit.entries(limit, before))
    return rows(found, service.zone)
