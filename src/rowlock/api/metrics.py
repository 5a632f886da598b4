"""`/metrics`: numbers of the database for Prometheus, and those of a worker that runs in this process.

Operators' tokens open it; with `api.metrics_open` it is open to everybody who can reach the server. It names queues,
tasks and sources, and nothing of any job.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response

from rowlock.api.problems import Refusal
from rowlock.api.routers import api_router
from rowlock.api.service import Serving
from rowlock.core.errors import ConfigError
from rowlock.signals.meters import shown

router = api_router(include_in_schema=False)


@router.get("/metrics")
async def read_metrics(request: Request, service: Serving) -> Response:
    """The numbers now, in the format that the Accept header asks for."""
    asker = request.scope["state"].get("asker")
    if not service.settings.metrics_open and (asker is None or not asker.is_operator):
        raise Refusal("FORBIDDEN", "this needs an operator's token: rowlock tokens create --scope operator:read")
    found = await service.metrics.samples()
    try:
        body, kind = shown([lambda: found, *service.client.meters], request.headers.get("accept", ""))
    except ConfigError as error:  # the library is not installed
        return PlainTextResponse(f"{error}\n", 501)
    return Response(body, media_type=kind)
