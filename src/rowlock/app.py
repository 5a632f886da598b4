"""`Rowlock`, the app object: the client (client/client.py: tasks, enqueue, reads, transactions), and methods that run
workers, dispatchers, bridges and the API.

A program that only enqueues never imports the worker: each method here imports what it starts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowlock.api.access.login_links import login_link
from rowlock.api.jobs.webhooks import CLASS, TASK
from rowlock.client.client import Client, job_id_of
from rowlock.client.context import Context
from rowlock.core.extras import API, needs

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI
    from starlette.requests import HTTPConnection

    from rowlock.api.access.auth import Authenticate, Authenticator
    from rowlock.api.access.sender import Caller
    from rowlock.api.access.tokens import Scope
    from rowlock.api.server import Server
    from rowlock.bridge.bridge import Bridge
    from rowlock.signals.traces import Traces
    from rowlock.worker.dispatcher import Dispatcher
    from rowlock.worker.lease import Lease
    from rowlock.worker.pool import WorkerPool


class Rowlock(Client):
    """An app: the tasks of one program, the database that queues them, and the workers that run them."""

    _authenticator: Authenticator | None = None

    @asynccontextmanager
    async def worker(self, **changes: Any) -> AsyncIterator[WorkerPool]:
        """A worker in this process, for tests and embedding; stopped gracefully when the block ends."""
        from rowlock.worker.lifecycle import started
        from rowlock.worker.pool import WorkerPool

        async with started(WorkerPool(self, **changes)) as pool:
            yield pool

    async def run_worker(self, **changes: Any) -> None:
        """Work until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT; or until cancelled)."""
        from rowlock.worker.lifecycle import run_worker

        await run_worker(self, **changes)

    def dispatcher(self) -> AbstractAsyncContextManager[Dispatcher]:
        """A dispatcher in this process: fires the ticks of schedules. Any number may run."""
        from rowlock.worker.dispatcher import Dispatcher
        from rowlock.worker.lifecycle import started

        return started(Dispatcher(self))

    async def run_dispatcher(self) -> None:
        """Fire ticks until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT; or until cancelled)."""
        from rowlock.worker.dispatcher import Dispatcher
        from rowlock.worker.lifecycle import run_until_signal

        await run_until_signal(self, Dispatcher(self))

    def bridge(self) -> AbstractAsyncContextManager[Bridge]:
        """A bridge in this process: publishes jobs of tasks with runs_on="redis" and writes down their results. Any
        number may run."""
        from rowlock.bridge.bridge import Bridge
        from rowlock.worker.lifecycle import started

        return started(Bridge(self))

    async def run_bridge(self) -> None:
        """Publish and listen until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT; or until cancelled)."""
        from rowlock.bridge.bridge import Bridge
        from rowlock.worker.lifecycle import run_until_signal

        await run_until_signal(self, Bridge(self))

    def server(self) -> AbstractAsyncContextManager[Server]:
        """The job API on a server in this process, at `api.host` and `api.port`; its `address` has both (a port of 0 is
        any that is free). Open requests are finished when the block ends."""
        with needs(*API):
            from rowlock.api.server import serving
        return serving(self)

    def serve_pages(self, folder: str | Path) -> None:
        """Let the job API serve a page of yours in place of the dashboard: index.html of a folder at the root, the
        folder's files below static/. Anybody may read them."""
        self.pages = Path(folder)

    def asgi(self, authenticate: Authenticate | None = None) -> FastAPI:
        """The job API as an ASGI application, to mount in one of yours under any prefix. `authenticate(request)`
        answers the owner who sent a request, or None; without it the API asks for tokens and sessions."""
        with needs(*API):
            from rowlock.api.app import build
        return build(self, authenticate)

    async def login_link(
        self, owner: str | None = None, *, scope: Scope | None = None, base_url: str | None = None
    ) -> str:
        """An address that logs one browser in to the job API, once and within ten minutes: as an owner, or without one
        as an operator (`scope="operator:read"` may only look). `base_url` is where the API is, if the settings do not
        have it."""
        link, stored = login_link(self.settings.api, owner, scope, base_url)
        await self.perform(stored)
        return link

    async def caller(self, request: HTTPConnection) -> Caller:
        """Who sent a request to a route of yours, by the tokens and sessions of the job API. Raises an HTTPException
        that your framework answers: 401 when nobody knows, 403 when a page of another site may have sent it."""
        with needs(*API):
            from rowlock.api.access.auth import Authenticator
        if self._authenticator is None:
            self._authenticator = Authenticator(self)
        return await self._authenticator.caller_of(request)

    def include_router(self, router: APIRouter) -> None:
        """Serve your own routes beside the job API, by `rowlock serve`, `rowlock up` and `asgi()`. They stand behind
        its checks: Host and Origin headers, size of the body, token, rate limits. On a path that both have, yours is
        served."""
        self.routers.append(router)

    def _make_traces(self) -> Traces:
        with needs("otel", "traces need a library"):
            from rowlock.signals.traces import Traces
        return Traces()

    def add_own_tasks(self) -> None:
        """The task that delivers webhooks, where they are enabled: one more task costs each claim a look."""
        if self.settings.api.webhooks.enabled and TASK not in self.registry.all():

            async def webhook(ctx: Context, url: str, owner: str, event: dict[str, Any]) -> None:
                from rowlock.api.jobs.delivery import deliver_job  # needs rowlock[webhooks]

                await deliver_job(self, ctx.job_id, event)

            self._register(TASK, webhook, {"counted": False}, own=True)
            self.own_sources = (CLASS,)

    async def claim(
        self, job_id: str, *, worker: str | None = None, lease_seconds: float | timedelta | None = None
    ) -> Lease | None:
        """Claim one job by hand, for a loop of your own; None when it cannot be claimed now (another worker has it, it
        waits for its time, its queue is paused). Workers need none of this."""
        from rowlock.worker.lease import claim_by_hand

        return await claim_by_hand(self, job_id_of(job_id), worker, lease_seconds)
