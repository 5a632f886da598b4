"""The ASGI application: all routes, behind the checks in gate.py. Serve it alone, or mount it in another app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from rowlock.api import operator, probes, problems
from rowlock.api.access import session
from rowlock.api.access.auth import Authenticate, Authenticator
from rowlock.api.access.gate import RequestGate
from rowlock.api.context import OPERATION_NAME, Service
from rowlock.api.jobs import delivery, jobs, results
from rowlock.api.live import messages, sockets
from rowlock.api.pages import Pages
from rowlock.client.client import Client
from rowlock.client.settings import VERSION
from rowlock.core.errors import ConfigError
from rowlock.health.sender import Alerts
from rowlock.worker.loops import Loops
from rowlock.worker.registration import worker_id

PARTS = (sockets, messages, results, delivery, jobs, *operator.PARTS, session, probes)
ROUTERS = [part.router for part in PARTS]
ASKED = ["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Prefer"]
DESCRIPTION = "Create jobs, watch them and get their results. Each token sees the jobs of its owner and no others."


def build(client: Client, authenticate: Authenticate | None = None, *, alone: bool = False) -> FastAPI:
    """The job API of an app. `authenticate` replaces tokens: it returns the owner who sent a request. `alone` means
    that the API is not mounted in another application, so the Host header is checked here."""
    settings = client.settings.api
    if settings.webhooks.enabled and not all(map(find_spec, ("aiohttp", "standardwebhooks"))):
        raise ConfigError('api.webhooks needs more packages: pip install "rowlock[webhooks]"')
    client.metered = True  # a worker in this process shows its numbers here
    service = Service(client, Authenticator(client, authenticate))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await client.store()
        try:
            async with _alerting(client):
                yield
        finally:
            await service.close()

    app = FastAPI(
        title="Rowlock job API",
        version=VERSION,
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,  # the Swagger page would load scripts from another server
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(problems.EXCEPTIONS, problems.answer),
        redirect_slashes=False,
        generate_unique_id_function=OPERATION_NAME,
    )
    app.state.service = service
    ours = list(app.router.routes)
    for router in client.routers:  # first: on a path that both have, the app's own route is served
        app.include_router(router)
    theirs = len(app.router.routes)
    # `include_router` would make a second copy of each route, with all of its models, at the first request: 100 ms of
    # processor time. The copies add what the application demands of each route, which is nothing.
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    pages = None  # a host application that authenticates knows owners and no operators: it has no dashboard
    if client.pages is not None or authenticate is None:
        pages = Pages(client.pages)
        app.router.routes.extend(pages.routes())
    ours += app.router.routes[theirs:]
    is_ours = partial(_is_ours, app.router.routes, frozenset(map(id, ours)))
    app.add_middleware(RequestGate, service=service, is_ours=is_ours, pages=pages, alone=alone)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=ASKED,
            expose_headers=["ETag", "Location", "Retry-After", "Preference-Applied", "Repr-Digest"],
        )
    return app


def _is_ours(routes: list[BaseRoute], ours: frozenset[int], scope: Scope) -> bool:
    """Whether the application has no route that would serve this request: neither one of `include_router` nor one that
    was added to what `build` returns."""
    matches = [(id(route) in ours, route.matches(scope)[0]) for route in routes]
    for of_ours, match in matches:
        if match is Match.FULL:
            return of_ours
    return all(of_ours or match is Match.NONE for of_ours, match in matches)


@asynccontextmanager
async def _alerting(app: Client) -> AsyncIterator[None]:
    """Take part in the alerts while the block runs, for a process that neither runs jobs nor fires ticks."""
    store = await app.store()
    part, loops = Alerts(app.settings.alerts, store, worker_id()), Loops(store.outage)
    part.start(loops.start)
    try:
        yield
    finally:
        await loops.stop_all()
        await part.stop()
