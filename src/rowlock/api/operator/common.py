"""What all operator routes share: who may use them, who is written into the audit, and records as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
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
from rowlock.core.durations import parse_duration
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
from rowlock.store.read.search import Counted

READS = ("GET", "HEAD")
FIRST_MOMENT, LAST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


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
    """A moment: an ISO time, or a duration before now such as 2h. It lies between 1970 and 2199: outside there are no
    jobs, and at the edge of Python's calendar a time cannot be converted to another zone."""
    ago = parse_duration(text)
    if ago is not None:
        return max(FIRST_MOMENT, datetime.now(UTC) - timedelta(seconds=min(ago, 3_153_600_000)))
    try:
        found = datetime.fromisoformat(text.strip().replace(" ", "+"))  # a plus sign in an address is a space
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Refusal(
            "INVALID_REQUEST", errors=[(field, "must be an ISO time with its zone, or a time ago such as 2h")]
        )
    return min(max(FIRST_MOMENT, found), LAST_MOMENT)


def rows(records: Iterable[Any], zone: ZoneInfo) -> Rows:
    """Records as JSON."""
    return Rows(items=[record(one, zone) for one in records])


def record(one: Any, zone: ZoneInfo) -> dict[str, Any]:
    """A record as a JSON object."""
    found: dict[str, Any] = jsonable(one, zone)
    return found


def jsonable(value: Any, zone: ZoneInfo) -> Any:
    """A record as JSON: camelCase names, times in the zone of the API."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {to_camel(name): jsonable(inner, zone) for name, inner in fields.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {to_camel(name): jsonable(inner, zone) for name, inner in zip(value._fields, value, strict=True)}
    if isinstance(value, datetime):
        return value.astimezone(zone).isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): jsonable(inner, zone) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(inner, zone) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def total(counts: Iterable[Counted]) -> dict[str, Any]:
    """Several counts as one."""
    listed = list(counts)
    return {"count": sum(one.count for one in listed), "exact": all(one.exact for one in listed)}
