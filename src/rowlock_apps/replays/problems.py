"""Errors of the routes as problem details (RFC 9457), in the form of the job API's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from rowlock_apps.replays.replay import ExportFailed
from rowlock_apps.replays.service import InUse, Missing, TooMany

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: str


KINDS = {
    "FORBIDDEN": Kind(403, "The token does not allow this"),
    "MATCH_NOT_FOUND": Kind(404, "There is no such match"),
    "REPLAY_NOT_FOUND": Kind(404, "There is no such replay"),
    "MATCH_IN_USE": Kind(409, "The match cannot be deleted now"),
    "REPLAY_IN_USE": Kind(409, "The replay cannot be deleted now"),
    "TOO_MANY_MATCHES": Kind(409, "The user has too many matches"),
    "TOO_MANY_REPLAYS": Kind(409, "The user has too many replays"),
    "NO_FRAMES": Kind(422, "The replay has no frames"),
    "INVALID_DURATION": Kind(422, "The replay is too short or too long for an export"),
    "EXPORTS_FULL": Kind(507, "There is no space for exports"),
}

# What the job API, whose checks come before the routes, may answer in place of any of them.
GENERAL = {
    "INVALID_JSON": Kind(400, "The body is not JSON"),
    "INVALID_HOST": Kind(400, "The Host header names another server"),
    "UNAUTHORIZED": Kind(401, "A valid token or session is needed"),
    "INVALID_ORIGIN": Kind(403, "The request comes from a page of another origin"),
    "INVALID_CSRF": Kind(403, "The request does not repeat the value of its session"),
    "BODY_TOO_LARGE": Kind(413, "The body is too large"),
    "INVALID_REQUEST": Kind(422, "The request does not fit this route"),
    "TOO_MANY_REQUESTS": Kind(429, "Too many requests"),
    "INTERNAL": Kind(500, "Internal server error"),
    "UNAVAILABLE": Kind(503, "The database cannot be used now"),
}


class Problem(BaseModel):
    """What went wrong, for people (`title`, `detail`) and for programs (`code`)."""

    type: str
    title: str
    status: int
    code: str
    detail: str | None = None


class Forbidden(Exception):
    """The request has a token, but not one of a user of this system."""


class ProblemRoute(APIRoute):
    """A route that answers the errors of this system. Those of the framework and of tokens are the job API's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except Missing as missing:  # whether or not it exists: a stranger gets this answer
                return problem(f"{missing.what}_NOT_FOUND")
            except InUse as in_use:
                return problem(f"{in_use.what}_IN_USE", str(in_use))
            except TooMany as too_many:
                return problem("TOO_MANY_MATCHES" if too_many.what == "MATCH" else "TOO_MANY_REPLAYS", str(too_many))
            except ExportFailed as failed:
                return problem(failed.code, str(failed))
            except Forbidden:
                return problem("FORBIDDEN", "matches and replays belong to users: send the token of one")

        return answered


def problem(code: str, detail: str | None = None) -> JSONResponse:
    """The answer to a request that is refused."""
    kind = KINDS[code]
    body = Problem(type=f"urn:rowlock:replays:{code}", title=kind.title, status=kind.status, code=code, detail=detail)
    return JSONResponse(body.model_dump(exclude_none=True), kind.status, media_type=MEDIA_TYPE)


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer, for its OpenAPI description: these, and the problems of every route."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in (*codes, "FORBIDDEN", *GENERAL):
        kind = KINDS.get(code) or GENERAL[code]
        entry = found.setdefault(kind.status, {"model": Problem, "description": kind.title, "content": {}})
        examples = entry["content"].setdefault(MEDIA_TYPE, {"examples": {}})["examples"]
        of = "replays" if code in KINDS else "problem"
        value = {"type": f"urn:rowlock:{of}:{code}", "title": kind.title, "status": kind.status, "code": code}
        examples[code] = {"summary": kind.title, "value": value}
    return found
