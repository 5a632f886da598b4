"""What all operator routes share: who may use them, who is written into the audit, and records as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import StringConstraints
from pydantic.alias_generators import to_camel

from rowlock.api.context import Acting as Acting
from rowlock.api.context import Who, api_router, asker_of, must_change, service_of
from rowlock.api.live.panels import Panels
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import NO_NUL, Shape
from rowlock.core import jsonable as core
from rowlock.core.errors import (
    BatchNotFound,
    InvalidArguments,
    JobNotFound,
    NotAllowed,
    ScheduleNotFound,
    TaskNotFound,
    WorkerNotFound,
)
from rowlock.core.job import Job
from rowlock.core.moments import parse_moment_or_ago
from rowlock.store.read.search import Counted

READS = ("GET", "HEAD")


async def _operators_only(request: Request, asker: Who) -> AsyncIterator[None]:
    """Around each of these routes: an operator, and for a change one who may change; what the library refuses becomes
    a problem."""
    if not asker.is_operator:
        raise Refusal("FORBIDDEN", "this needs an operator's token: rowlock tokens create --scope operator")
    if request.method not in READS:
        must_change(asker)
    try:
        yield
    except (BatchNotFound, ScheduleNotFound, JobNotFound, TaskNotFound, WorkerNotFound) as error:
        raise Refusal("NOT_FOUND", str(error)) from None
    except (InvalidArguments, NotAllowed) as error:
        raise Refusal("NOT_ALLOWED" if isinstance(error, NotAllowed) else "INVALID_ARGUMENTS", str(error)) from None


class OperatorRoute(APIRoute):
    """One of these routes. What it reads has an ETag. A client that sends the ETag back is a page that follows changes:
    many of them ask at the same moment, so it may be answered with what another one has read within the last second."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if "GET" in options["methods"]:
            options["responses"] = {**options["responses"], 304: {"description": "Not changed"}}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What serves a request."""
        return partial(self._serve, super().get_route_handler())

    async def _serve(self, handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        panels = (await service_of(request)).panels
        if "GET" in (self.methods or ()):
            return await _read(request, handler, panels)
        try:
            return await handler(request)
        finally:
            panels.forget()


async def _read(request: Request, handler: Callable[[Request], Awaitable[Response]], panels: Panels) -> Response:
    asker, known = await asker_of(request), request.headers.get("if-none-match")
    if not asker.is_operator:
        return await handler(request)  # which refuses it
    key = (request.url.path, request.url.query, asker.may_change)
    response, shared = await panels.answer(key, lambda: handler(request), share=known is not None)
    if response.status_code != 200:
        return response
    etag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
    headers = {"ETag": etag, **({"Age": "1"} if shared else {})}
    if known is not None and etag in known:
        return Response(status_code=304, headers=headers)
    return Response(response.body, 200, headers, media_type="application/json")


def operator_router(route_class: type[OperatorRoute] = OperatorRoute) -> APIRouter:
    """A router for some of these routes."""
    return api_router(
        route_class=route_class,
        prefix="/api/operator",
        tags=["operator"],
        dependencies=[Depends(_operators_only)],
        responses=documented("FORBIDDEN", "INVALID_REQUEST", "TOO_SLOW"),
    )


Limit = Annotated[int, Query(ge=1, le=1000)]
Name = Annotated[str, Path(min_length=1, max_length=200, pattern=NO_NUL)]
AfterName = Annotated[str, Query(max_length=200, pattern=NO_NUL)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
Text = Annotated[str | None, Query(max_length=200, pattern=NO_NUL)]
NOT_FOUND = documented("NOT_FOUND")
REFUSED = documented("NOT_FOUND", "NOT_ALLOWED", "INVALID_ARGUMENTS")


class Rows(Shape):
    """Records of one kind."""

    items: list[dict[str, Any]]


def existing(job: Job | None) -> Job:
    """A job that was found, or the answer about one that is not there."""
    if job is None:
        raise Refusal("NOT_FOUND", "there is no such job")
    return job


def moment_before(text: str, field: str) -> datetime:
    """A moment: an ISO time, or a duration before now such as 2h."""
    try:
        return parse_moment_or_ago(text)
    except InvalidArguments as error:
        raise Refusal("INVALID_REQUEST", errors=[(field, str(error))]) from None


def rows(records: Iterable[Any], zone: ZoneInfo) -> Rows:
    """Records as JSON."""
    return Rows(items=[record(one, zone) for one in records])


def record(one: Any, zone: ZoneInfo) -> dict[str, Any]:
    """A record as a JSON object."""
    found: dict[str, Any] = jsonable(one, zone)
    return found


def jsonable(value: Any, zone: ZoneInfo) -> Any:
    """A record as JSON: camelCase names, times in the zone of the API."""
    return core.jsonable(value, lambda at: at.astimezone(zone).isoformat(), to_camel)


def total(counts: Iterable[Counted]) -> dict[str, Any]:
    """Several counts as one."""
    listed = list(counts)
    return {"count": sum(one.count for one in listed), "exact": all(one.exact for one in listed)}
