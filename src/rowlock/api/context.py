"""What all routes share: the app whose jobs they serve, the sender, the feed of events, and how routers are made."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from operator import attrgetter
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Path
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel
from starlette.requests import HTTPConnection
from starlette.responses import Response

from rowlock.api.access import own_jobs, tokens
from rowlock.api.access.auth import Authenticator
from rowlock.api.access.own_jobs import Owner
from rowlock.api.access.sender import Asker
from rowlock.api.live.panels import Panels
from rowlock.api.live.reader import Feed
from rowlock.api.problems import UNUSABLE, Refusal
from rowlock.client.client import Client
from rowlock.client.open_stores import Stores
from rowlock.core.errors import TooSlow
from rowlock.core.job import Job
from rowlock.core.jsonable import jsonable
from rowlock.health.conditions import counted
from rowlock.signals.server_meter import DatabaseMeter
from rowlock.store.audit import Actor
from rowlock.store.engine.operation import Operation
from rowlock.store.read.snapshot import Snapshots

T = TypeVar("T")
TOKEN_SECONDS = 2.0
LOOK_CONNECTIONS, LOOK_SECONDS = 2, 2.0  # of dashboards


class Service:
    def __init__(self, client: Client, authenticator: Authenticator) -> None:
        self.client, self.authenticator, self.settings = client, authenticator, client.settings.api
        self.zone = ZoneInfo(self.settings.zone)
        self.feed = Feed(client.store)
        self.snapshots = Snapshots(self.look)
        self.panels = Panels(client.store, self.snapshots.changed)
        self.metrics = DatabaseMeter(self.look, self.snapshots, counted)
        self._readers = Stores(lambda: client.open_reader(LOOK_CONNECTIONS, LOOK_SECONDS))
        self._tokens: dict[str, float] = {}  # tokens of open connections, and when each was last checked
        self._bad: set[str] = set()
        self._asked_at = 0.0
        self._connections: Counter[Owner] = Counter()  # WebSockets and event streams
        self._creating: Counter[Owner] = Counter()  # requests that create a job at this moment

    async def look(self, operation: Operation[T]) -> T:
        """Run a read for a dashboard: with separate connections and a time limit, so that dashboards cannot starve the
        application."""
        try:
            return await (await self._readers.get()).run(operation)
        except TooSlow as error:
            raise Refusal("TOO_SLOW", str(error)) from None

    async def close(self) -> None:
        await self.feed.close()
        await self.panels.close()
        await self._readers.close()

    async def run(self, operation: Operation[T]) -> T:
        try:
            return await (await self.client.store()).run(operation)
        finally:
            if not operation.read:
                self.snapshots.changed()

    def json(self, value: Any) -> Any:
        """A value as operators get it: camelCase names, times in the zone of the API."""
        return jsonable(value, lambda at: at.astimezone(self.zone).isoformat(), to_camel)

    def record(self, one: Any) -> dict[str, Any]:
        return dict(self.json(one))

    async def job_of(self, asker: Asker, job_id: str) -> Job:
        """A job that the sender may read. Jobs that do not exist and jobs of others give the same 404."""
        job = await self.run(own_jobs.get(asker.owner, job_id))
        if job is None or asker.job_id not in (None, job.id):
            raise Refusal("JOB_NOT_FOUND")
        return job

    async def token_is_good(self, asker: Asker) -> bool:
        """Whether the token of an open connection has neither been revoked nor expired. The database is asked once in
        two seconds for all open connections together."""
        if asker.good_until is not None and time.time() >= asker.good_until:
            return False
        if asker.token_id is None:
            return True
        self._tokens[asker.token_id] = now = time.monotonic()
        if now >= self._asked_at + TOKEN_SECONDS:
            self._asked_at = now
            self._tokens = {token: at for token, at in self._tokens.items() if at > now - 10 * TOKEN_SECONDS}
            asked = sorted(self._tokens)
            with suppress(*UNUSABLE):  # cannot be checked now; without the database there are no events either
                good = await self.run(tokens.still_good(asked))
                self._bad = set(asked) - good
        return asker.token_id not in self._bad

    @contextmanager
    def connection(self, asker: Asker) -> Iterator[None]:
        """Count one more connection of an owner while the block runs; refused if the owner has the maximum already. It
        is counted before the first await, so that simultaneous connections cannot exceed the limit."""
        with _counted(self._connections, asker.owner) as others:
            if others >= self.settings.connections_per_owner:
                raise Refusal("TOO_MANY_CONNECTIONS", headers={"Retry-After": "10"})
            yield

    def creating(self, owner: Owner) -> AbstractContextManager[int]:
        """Around a request that creates a job: how many others of its owner are doing so in this server."""
        return _counted(self._creating, owner)


@contextmanager
def _counted(counts: Counter[Owner], owner: Owner) -> Iterator[int]:
    """Count one more while the block runs, which is given the number of the others. An owner with none is forgotten."""
    others = counts[owner]
    counts[owner] += 1
    try:
        yield others
    finally:
        counts[owner] -= 1
        if not counts[owner]:
            del counts[owner]


def must_change(asker: Asker) -> None:
    if not asker.may_change:
        raise Refusal("FORBIDDEN", "this token can only read")


def tagged(body: bytes, known: str | None, headers: Mapping[str, str], kind: str = "application/json") -> Response:
    """An answer with an ETag; 304 if the client has it already. `known` is its If-None-Match."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, **headers}
    if known is not None and (etag in known or known.strip() == "*"):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, kind)


async def service_of(connection: HTTPConnection) -> Service:
    service: Service = connection.scope["state"]["rowlock"]
    return service


async def asker_of(connection: HTTPConnection) -> Asker:
    """The sender of this request, as authenticated by the gate."""
    asker: Asker = connection.scope["state"]["asker"]
    return asker


Serving = Annotated[Service, Depends(service_of)]
Who = Annotated[Asker, Depends(asker_of)]


async def actor_of(connection: HTTPConnection, asker: Who) -> Actor:
    """Who acts, for the audit."""
    who = f"token {asker.token_id}" if asker.token_id is not None else asker.key
    return Actor(who, "api", address_of(connection))


async def operator_of(asker: Who, actor: Annotated[Actor, Depends(actor_of)]) -> Actor | None:
    """The operator who acts on a route that owners use as well. None for an owner: changes of one's own jobs are not in
    the audit."""
    return actor if asker.is_operator else None


def address_of(connection: HTTPConnection) -> str | None:
    return str(connection.client.host) if connection.client else None


Acting = Annotated[Actor, Depends(actor_of)]
ActingOperator = Annotated[Actor | None, Depends(operator_of)]
JobId = Annotated[str, Path(alias="jobId", max_length=100, description="The job's id, as returned when it was created")]


# --- routers


# A route's name in the OpenAPI document; generated clients name their functions after it.
OPERATION_NAME: Callable[[APIRoute], str] = attrgetter("name")


def api_router(**options: Any) -> APIRouter:
    return APIRouter(generate_unique_id_function=OPERATION_NAME, **options)
