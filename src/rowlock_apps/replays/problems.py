"""Errors of the routes as problem details (RFC 9457), in the form of the job API's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from rowlock_apps.replays.replay import ExportFailed
from rowlock_apps.replays.service import InUse, Missing

TITLES = {
    "MATCH_NOT_FOUND": "There is no such match",
    "REPLAY_NOT_FOUND": "There is no such replay",
    "MATCH_IN_USE": "The match cannot be deleted now",
    "REPLAY_IN_USE": "The replay cannot be deleted now",
    "NO_FRAMES": "The replay has no frames",
    "INVALID_DURATION": "The replay is too short or too long for an export",
    "FORBIDDEN": "The token does not allow this",
    "EXPORTS_FULL": "There is no space for exports",
}


class Forbidden(Exception):
    """The request has a token, but not one of a user of this system."""


class ProblemRoute(APIRoute):
    """A route that answers the errors of this system. Those of the framework and of tokens are the job API's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except Missing as missing:  # nothing says whether it exists: a stranger gets this answer, too
                return problem(404, f"{missing.what}_NOT_FOUND")
            except InUse as in_use:
                return problem(409, f"{in_use.what}_IN_USE", str(in_use))
            except ExportFailed as failed:
                return problem(507 if failed.code == "EXPORTS_FULL" else 422, failed.code, str(failed))
            except Forbidden:
                return problem(403, "FORBIDDEN", "matches and replays belong to users: send the token of one")

        return answered


def problem(status: int, code: str, detail: str | None = None) -> JSONResponse:
    """What went wrong, for people (`title`, `detail`) and for programs (`code`)."""
    body = {"type": f"urn:rowlock:replays:{code}", "title": TITLES[code], "status": status, "code": code}
    return JSONResponse(
        body | ({} if detail is None else {"detail": detail}), status, media_type="application/problem+json"
    )
