"""Health checks for supervisors and load balancers. They need no token and reveal nothing about jobs."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import PlainTextResponse

from rowlock.api.routers import api_router
from rowlock.api.service import Serving
from rowlock.core.errors import RowlockError
from rowlock.store import tokens

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
