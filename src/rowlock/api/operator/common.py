"""What all operator routes share: who may use them, who is written into the audit, and records as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import StringConstraints
from pydantic.alias_generators import to_camel

from rowlock.api.context import Acting as Acting
from rowlock.api.context import Who, api_router, must_change
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


def operator_router(route_class: type[APIRoute] = APIRoute) -> APIRouter:
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
