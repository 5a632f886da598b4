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

from rowlock.api.access.tokens import login_link
from rowlock.api.jobs.webhooks import CLASS, TASK
from rowlock.client.client import Client, job_id_of
from rowlock.client.context import Context
from rowlock.core.errors import API, needs

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
    """An app: the tasks of one program, the database that queues them, and the workers that run them. The methods for
    tasks, jobs, batches and transactions are those of `Client` (client/client.py)."""

    _authenticator: Authenticator | None = None
    _traces: Traces | None = None

    @asynccontextmanager
    async def worker(self, **changes: Any) -> AsyncIterator[WorkerPool]:
        """Run a worker in this process while the block runs, for tests and embedding; it then stops gracefully.
        Keywords replace settings of the worker, such as `pool_size=2`."""
        from rowlock.worker.lifecycle import started
        from rowlock.worker.pool import WorkerPool

        async with started(WorkerPool(self, **changes)) as pool:
            yield pool

    async def run_worker(self, **changes: Any) -> None:
        """Run a worker until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT), or until cancelled."""
        from rowlock.worker.lifecycle import run_worker

        await run_worker(self, **changes)

    def dispatcher(self) -> AbstractAsyncContextManager[Dispatcher]:
        """Run a dispatcher in this process while the block runs: it fires the ticks of schedules. Any number may
        run."""
        from rowlock.worker.dispatcher import Dispatcher
        from rowlock.worker.lifecycle import started

        return started(Dispatcher(self))

    async def run_dispatcher(self) -> None:
        """Run a dispatcher until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT), or until cancelled."""
        from rowlock.worker.dispatcher import Dispatcher
        from rowlock.worker.lifecycle import run_until_signal

        await run_until_signal(self, Dispatcher(self))

    def bridge(self) -> AbstractAsyncContextManager[Bridge]:
        """Run a bridge in this process while the block runs: it publishes the jobs of tasks with runs_on="redis" and
        records their results. Any number may run."""
        from rowlock.bridge.bridge import Bridge
        from rowlock.worker.lifecycle import started

        return started(Bridge(self))

    async def run_bridge(self) -> None:
        """Run a bridge until a stop signal (SIGTERM, SIGINT, SIGHUP, SIGQUIT), or until cancelled."""
        from rowlock.bridge.bridge import Bridge
        from rowlock.worker.lifecycle import run_until_signal

        await run_until_signal(self, Bridge(self))

    def server(self) -> AbstractAsyncContextManager[Server]:
        """Serve the job API in this process while the block runs, at `api.host` and `api.port`; `address` has both
        (port 0 means any free one). When the block ends, open requests are finished first."""
        with needs(*API):
            from rowlock.api.server import serving
        return serving(self)

    def serve_pages(self, folder: str | Path) -> None:
        """Make the job API serve your own page instead of the dashboard: the folder's index.html at the root, its files
        below static/. Anybody may read them."""
        self.pages = Path(folder)

    def asgi(self, authenticate: Authenticate | None = None) -> FastAPI:
        """The job API as an ASGI application, to mount in yours under any prefix. `authenticate(request)` returns the
        owner who sent a request, or None. Without it, the API asks for its own tokens and sessions."""
        with needs(*API):
            from rowlock.api.app import build
        return build(self, authenticate)

    async def login_link(
        self, owner: str | None = None, *, scope: Scope | None = None, base_url: str | None = None
    ) -> str:
        """A URL that logs one browser in to the job API, once and within ten minutes: as `owner`, or without one as an
        operator (with `scope="operator:read"`, one who may only look). `base_url` is where the API is, unless the
        settings have it."""
        link, stored = login_link(self.settings.api, owner, scope, base_url)
        await self.perform(stored)
        return link

    async def caller(self, request: HTTPConnection) -> Caller:
        """Who sent a request to one of your own routes, by the job API's tokens and sessions. Raises an HTTPException
        for your framework to answer: 401 if the sender is unknown, 403 if a page of another site may have sent it."""
        with needs(*API):
            from rowlock.api.access.auth import Authenticator
        if self._authenticator is None:
            self._authenticator = Authenticator(self)
        return await self._authenticator.caller_of(request)

    def include_router(self, router: APIRouter) -> None:
        """Serve your own routes beside the job API, by `rowlock serve`, `rowlock up` and `asgi()`. The API's checks
        apply to them: Host and Origin headers, size of the body, token, rate limits. On a path that both have, yours
        is served."""
        self.routers.append(router)

    @property
    def traces(self) -> Traces | None:
        """Makes spans of enqueues and attempts; None if traces are off."""
        if not self.settings.traces.enabled:
            return None
        if self._traces is None:
            with needs("otel", "traces need a library"):
                from rowlock.signals.traces import Traces
            self._traces = Traces()
        return self._traces

    def add_own_tasks(self) -> None:
        """Register the task that delivers webhooks, but only if they are enabled: each task costs every claim a
        look."""
        if self.settings.api.webhooks.enabled and TASK not in self.registry.all():

            async def webhook(ctx: Context, url: str, owner: str, event: dict[str, Any]) -> None:
                from rowlock.api.jobs.delivery import deliver_job  # needs rowlock[webhooks]

                await deliver_job(self, ctx.job_id, event)

            self._register(TASK, webhook, {"counted": False}, own=True)
            self.own_sources = (CLASS,)

    async def claim(
        self, job_id: str, *, worker: str | None = None, lease_seconds: float | timedelta | None = None
    ) -> Lease | None:
        """Claim one job by hand, to run it in your own loop. Returns None if it can't be claimed now: another worker
        has it, its time hasn't come, or its queue is paused. Workers don't need this."""
        from rowlock.worker.lease import claim_by_hand

        return await claim_by_hand(self, job_id_of(job_id), worker, lease_seconds)
