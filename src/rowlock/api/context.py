"""What all routes share: the app whose jobs they serve, who asks, the feed of events, and how routers are made."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, FastAPI, Path
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

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
from rowlock.health.conditions import counted
from rowlock.signals.server_meter import DatabaseMeter
from rowlock.store.audit import Actor
from rowlock.store.engine.operation import Operation
from rowlock.store.read.snapshot import Snapshots

T = TypeVar("T")
TOKEN_SECONDS = 2.0
LOOK_CONNECTIONS, LOOK_SECONDS = 2, 2.0  # of dashboards


class Service:
    """The app behind the routes."""

    def __init__(self, client: Client, authenticator: Authenticator) -> None:
        self.client, self.authenticator, self.settings = client, authenticator, client.settings.api
        self.zone = ZoneInfo(self.settings.zone)
        self.feed = Feed(client.store)
        self.snapshots = Snapshots(self.look)
        self.panels = Panels(client.store, self.snapshots.changed)
        self.results = client.results
        self.metrics = DatabaseMeter(self.look, self.snapshots, counted)
        self._readers = Stores(lambda: client.open_reader(LOOK_CONNECTIONS, LOOK_SECONDS))
        self._tokens: dict[str, float] = {}  # tokens of open connections, and when each was last checked
        self._bad: set[str] = set()
        self._asked_at = 0.0
        self._connections: Counter[Owner] = Counter()  # WebSockets and event streams
        self._creating: Counter[Owner] = Counter()  # requests that create a job at this moment

    async def look(self, operation: Operation[T]) -> T:
        """Run a read for a dashboard: with connections of its own and a limit of time, so that people who look cannot
        starve the application."""
        try:
            return await (await self._readers.get()).run(operation)
        except TooSlow as error:
            raise Refusal("TOO_SLOW", str(error)) from None

    async def close(self) -> None:
        """Stop reading, and close what was opened for it."""
        await self.feed.close()
        await self.panels.close()
        await self._readers.close()

    async def run(self, operation: Operation[T]) -> T:
        """Run one operation on the app's database."""
        try:
            return await (await self.client.store()).run(operation)
        finally:
            if not operation.read:
                self.snapshots.changed()

    async def job_of(self, asker: Asker, job_id: str) -> Job:
        """A job that the sender may read. Jobs that do not exist and jobs of others give the same 404."""
        job = await self.run(own_jobs.get(asker.owner, job_id))
        if job is None or asker.job_id not in (None, job.id):
            raise no_job()
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
        if self._connections[asker.owner] >= self.settings.connections_per_owner:
            raise Refusal("TOO_MANY_CONNECTIONS", headers={"Retry-After": "10"})
        with _counted(self._connections, asker.owner):
            yield

    @contextmanager
    def creating(self, owner: Owner) -> Iterator[int]:
        """A request that creates a job; tells how many others of its owner do so at this moment in this server."""
        others = self._creating[owner]
        with _counted(self._creating, owner):
            yield others


@contextmanager
def _counted(counts: Counter[Owner], owner: Owner) -> Iterator[None]:
    """One more for as long as the block lasts. An owner with none is forgotten."""
    counts[owner] += 1
    try:
        yield
    finally:
        counts[owner] -= 1
        if not counts[owner]:
            del counts[owner]


def no_job() -> Refusal:
    """The 404 for a job that does not exist, and for one of another owner: they cannot be told apart."""
    return Refusal("JOB_NOT_FOUND")


def must_change(asker: Asker) -> None:
    """Refuse a sender who may only read."""
    if not asker.may_change:
        raise Refusal("FORBIDDEN", "this token can only read")


async def service_of(connection: HTTPConnection) -> Service:
    """The Service that belongs to this request's application."""
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
    """The operator who acts on a route that owners use as well. None for an owner: what people do with their own jobs
    is not in the audit."""
    return actor if asker.is_operator else None


def address_of(connection: HTTPConnection) -> str | None:
    """The address that a request came from."""
    return str(connection.client.host) if connection.client else None


Acting = Annotated[Actor, Depends(actor_of)]
ActingOperator = Annotated[Actor | None, Depends(operator_of)]
JobId = Annotated[str, Path(alias="jobId", max_length=100, description="The job's id, as returned when it was created")]


# --- routers


def operation_name(route: APIRoute) -> str:
    """Its name in the OpenAPI document; generated clients name their functions after it."""
    return route.name


def api_router(**options: Any) -> APIRouter:
    """A router, with the options of FastAPI's."""
    return APIRouter(generate_unique_id_function=operation_name, **options)


def add_routes(target: FastAPI | APIRouter, routers: Iterable[APIRouter]) -> None:
    """Serve the routes of our own routers as they are.

    `include_router` would make a second copy of each route, with all of its models, at an application's first
    request: 100 ms of processor time. The copies add what the application demands of each route, which is nothing.
    """
    routes = target.router.routes if isinstance(target, FastAPI) else target.routes
    for router in routers:
        routes.extend(router.routes)
