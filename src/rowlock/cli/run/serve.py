"""`rowlock serve`: the job API, in its own process or in the process of a worker."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.kit.logs import LogOptions, configure_logs
from rowlock.cli.kit.options import given
from rowlock.cli.kit.target import Target, run_open
from rowlock.cli.verbs.tokens import LoginLinkOption, print_link
from rowlock.core.errors import API, ConfigError, needs

if TYPE_CHECKING:
    from rowlock.app import Rowlock

log = logging.getLogger("rowlock.api")


@dataclass(frozen=True, slots=True)
class ApiOptions:
    host: Annotated[str | None, typer.Option(help="Address of the API [default: 127.0.0.1]")] = None
    port: Annotated[str | None, typer.Option(metavar="N", help="Port of the API [default: 8321]")] = None
    login_link: LoginLinkOption = None

    def flags(self) -> dict[str, Any]:
        return {f"api.{name}": value for name, value in given(self).items() if name != "login_link"}


def serve(target: Target, options: ApiOptions, logs: LogOptions) -> None:
    """Serve the job API and the dashboard. Clients create jobs of public tasks, watch them and get their results."""
    configure_logs(logs)
    app = target.open(options.flags())
    with needs(*API):
        from rowlock.api.server import run_server

    run_open(app, lambda app: run_server(app, lambda address: print_link(app, address, options.login_link)))


@asynccontextmanager
async def serving_beside(app: Rowlock, asked: bool, login_link: bool | None) -> AsyncIterator[None]:
    """Serve the API during the block. If the settings don't mention the API (`asked` is false), a missing package or a
    port in use is only logged, and the worker runs without the API."""
    async with AsyncExitStack() as stack:
        try:
            server = await stack.enter_async_context(app.server())
        except ConfigError as error:
            if asked:
                raise
            level = logging.INFO if isinstance(error.__cause__, ImportError) else logging.WARNING
            log.log(level, "running without the job API: %s", error)
        else:
            await print_link(app, server.address, login_link)
        yield
