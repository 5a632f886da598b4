"""What supervisors, load balancers and Prometheus ask.

The health checks need no token and reveal nothing about jobs. `/metrics` has the numbers of the database, and of a
worker that runs in this process: it names queues, tasks and sources, and nothing of any job. Operators' tokens open it;
with `api.metrics_open` it is open to everybody who can reach the server.
"""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from rowlock.api.access import tokens
from rowlock.api.context import Serving, api_router
from rowlock.api.problems import Refusal
from rowlock.core.errors import ConfigError, RowlockError
from rowlock.signals.endpoint import shown

router = api_router(tags=["health"])


@router.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """The process answers."""
    return "ok"


@router.get(
    "/readyz", response_class=PlainTextResponse, responses={503: {"description": "The database cannot be used"}}
)
async def readyz(service: Serving, response: Response) -> str:
    """The database can be reached and has the tables that this version needs."""
    try:
        await service.run(tokens.any_good())
    except RowlockError as error:
        response.status_code = 503
        return f"not ready: {type(error).__name__}"
    return "ok"


@router.get("/metrics", include_in_schema=False)
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
