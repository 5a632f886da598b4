"""The end of a demo on a terminal: its jobs stay, and the dashboard shows them until Ctrl-C."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from rowlock.api.server import Server, serving
from rowlock.app import Rowlock
from rowlock.cli.kit.loop import run_async
from rowlock.client.settings import read_settings
from rowlock.core.errors import ConfigError
from rowlock.worker.lifecycle import signals


def show(url: str, config: str | None, goes_on: Rowlock | None) -> None:
    """Serve the jobs in this database. A worker of the app that `goes_on` runs beside it, so that a retry in the
    dashboard can be watched; None: the workers of this demo have ended."""
    run_async(_show(goes_on or Rowlock(settings=read_settings(url, config)), worker=goes_on is not None))


async def _show(app: Rowlock, *, worker: bool) -> None:
    with signals() as stopper:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            server = await stack.enter_async_context(_served(app))
            if worker:
                await stack.enter_async_context(app.worker(shutdown_timeout_seconds=1))
            host, port = server.address
            where = f"http://{host}:{port}{app.settings.api.base_path}"
            print(f"dashboard  {where}/")
            print(f"           {await app.login_link(scope='operator', base_url=where)}")
            print("           opens it once, within ten minutes; Ctrl-C ends the demo", flush=True)
            await stopper.asked.wait()


@contextlib.asynccontextmanager
async def _served(app: Rowlock) -> AsyncIterator[Server]:
    """A server at the address of the settings or, if that is taken, at a free port."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            server = await stack.enter_async_context(serving(app))
        except ConfigError:
            api = app.settings.api.model_copy(update={"port": 0})
            app.configure(app.settings.model_copy(update={"api": api}))
            server = await stack.enter_async_context(serving(app))
        yield server
