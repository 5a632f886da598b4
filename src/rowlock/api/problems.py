"""Errors of the API as problem details (RFC 9457), each with a stable code for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from rowlock.core.errors import SchemaError, StorageFull, StoreUnavailable, TransactionConflict

# Errors of a database that cannot be used now: the same request may work later.
UNUSABLE = (StoreUnavailable, StorageFull, SchemaError, TransactionConflict)
MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: str


KINDS: dict[str, Kind] = {
    "INVALID_REQUEST": Kind(422, "The request does not fit this route"),
    "INVALID_ARGUMENTS": Kind(422, "The arguments do not fit the task"),
    "INVALID_JSON": Kind(400, "The body is not JSON"),
    "REPEATED_NAME": Kind(400, "An object of the body has one name twice"),
    "INVALID_CURSOR": Kind(400, "The cursor was not made by this API"),
    "INVALID_HOST": Kind(400, "The Host header names another server"),
    "INVALID_OUTPUT_PATH": Kind(400, "The result lies outside of the results folder"),
    "PAGE_TOO_DEEP": Kind(400, "The page is too far from the first one"),
    "UNAUTHORIZED": Kind(401, "A valid token or session is needed"),
    "FORBIDDEN": Kind(403, "The token does not allow this"),
    "INVALID_ORIGIN": Kind(403, "The request comes from a page of another origin"),
    "INVALID_CSRF": Kind(403, "The request does not repeat the value of its session"),
    "JOB_NOT_FOUND": Kind(404, "There is no such job"),
    "TASK_NOT_FOUND": Kind(404, "There is no such public task"),
    "RESULT_NOT_FOUND": Kind(404, "The job has no result"),
    "NOT_FOUND": Kind(404, "There is no such resource"),
    "METHOD_NOT_ALLOWED": Kind(405, "The route does not take this method"),
    "REQUEST_TIMEOUT": Kind(408, "The body came too slowly"),
    "NOT_ALLOWED": Kind(409, "The state of the job does not permit this"),
    "NOT_FINISHED": Kind(409, "The job has not succeeded"),
    "IN_FLIGHT": Kind(409, "A request with this Idempotency-Key is being carried out"),
    "RESULT_GONE": Kind(410, "The file of the result is gone"),
    "BODY_TOO_LARGE": Kind(413, "The body is too large"),
    "UNSUPPORTED_MEDIA_TYPE": Kind(415, "The body must be JSON"),
    "RANGE_NOT_SATISFIABLE": Kind(416, "The range lies outside of the file"),
    "KEY_REUSED": Kind(422, "The Idempotency-Key was used with another body"),
    "WEBHOOKS_OFF": Kind(422, "This server sends no webhooks"),
    "WEBHOOK_REFUSED": Kind(422, "This server does not send webhooks to this address"),
    "NO_WEBHOOK_SECRET": Kind(422, "The owner has no secret to sign webhooks with"),
    "TOO_MANY_JOBS": Kind(429, "The owner has too many jobs that are not finished"),
    "TOO_MANY_REQUESTS": Kind(429, "Too many requests"),
    "TOO_MANY_CONNECTIONS": Kind(429, "The owner has too many open connections"),
    "INTERNAL": Kind(500, "Internal server error"),
    "RESULTS_UNAVAILABLE": Kind(503, "The storage of results cannot be used now"),
    "TOO_SLOW": Kind(503, "The database took too long to answer this; ask for less"),
    "UNAVAILABLE": Kind(503, "The database cannot be used now"),
}


HTTP_CODES = {400: "INVALID_JSON", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}

# Every route may answer these.
GENERAL = (
    *("INVALID_REQUEST", "INVALID_HOST", "INVALID_ORIGIN", "INVALID_CSRF", "UNAUTHORIZED"),
    *("TOO_MANY_REQUESTS", "UNAVAILABLE", "INTERNAL"),
)


class FieldProblem(BaseModel):
    """One field that is wrong."""

    field: str = Field(examples=["args.size"])
    message: str = Field(examples=["must be greater than 0"])


class Problem(BaseModel):
    """What went wrong, for people (`title`, `detail`) and for programs (`code`)."""

    type: str = Field(examples=["urn:rowlock:problem:JOB_NOT_FOUND"])
    title: str
    status: int
    code: str = Field(examples=["JOB_NOT_FOUND"])
    detail: str | None = None
    errors: list[FieldProblem] | None = None


@dataclass(eq=False)
class Refusal(Exception):
    """Answers a request with a problem."""

    code: str
    detail: str | None = None
    errors: Sequence[tuple[str, str]] = field(default=(), kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return self.detail or self.code

    @property
    def status(self) -> int:
        return KINDS[self.code].status

    def body(self) -> dict[str, Any]:
        kind = KINDS[self.code]
        problem = Problem(
            type=f"urn:rowlock:problem:{self.code}",
            title=kind.title,
            status=kind.status,
            code=self.code,
            detail=self.detail,
            errors=[FieldProblem(field=field, message=message) for field, message in self.errors] or None,
        )
        return problem.model_dump(exclude_none=True)

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers, media_type=MEDIA_TYPE)


def unauthorized() -> Refusal:
    return Refusal("UNAUTHORIZED", "send Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"})


def unavailable() -> Refusal:
    return Refusal("UNAVAILABLE", headers={"Retry-After": "5"})


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer, for its OpenAPI description; the general ones are added to every route."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in (*codes, *GENERAL):
        kind = KINDS[code]
        entry = found.setdefault(kind.status, {"model": Problem, "description": kind.title, "content": {}})
        examples = entry["content"].setdefault(MEDIA_TYPE, {"examples": {}})["examples"]
        examples[code] = {"summary": kind.title, "value": Refusal(code).body()}
    return found


# --- exceptions of routes

# All of them. The framework refuses an unknown route or a wrong method by an HTTPException.
EXCEPTIONS = (Refusal, RequestValidationError, HTTPException, *UNUSABLE, Exception)


async def answer(_: Request, error: Exception) -> JSONResponse:
    """The problem that an exception of a route becomes. The traceback of an unexpected one is logged by the server; the
    client does not get it."""
    return _refusal_of(error).response()


def _refusal_of(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, UNUSABLE):
        return unavailable()
    if isinstance(error, HTTPException):
        return Refusal(HTTP_CODES.get(error.status_code, "INVALID_REQUEST"), headers=error.headers)
    if not isinstance(error, RequestValidationError):
        return Refusal("INTERNAL")
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return Refusal("INVALID_JSON", "the body must be one JSON object")
    errors = [(".".join(map(str, problem["loc"][1:])) or "body", _lower(problem["msg"])) for problem in problems[:20]]
    return Refusal("INVALID_REQUEST", errors=errors)


def _lower(text: str) -> str:
    text = text.removeprefix("Value error, ").replace("Input should be", "must be")
    return text[:1].lower() + text[1:]
