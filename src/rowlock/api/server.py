"""Runs the API in uvicorn with stricter limits, in its own process or in the process of a worker."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvicorn

from rowlock.api.access import tokens
from rowlock.api.app import build
from rowlock.api.strict_http import StrictProtocol
from rowlock.client.client import Client
from rowlock.core.config import ApiSettings
from rowlock.core.errors import ConfigError, StoreError
from rowlock.public_web import is_loopback
from rowlock.worker.lifecycle import signals

log = logging.getLogger("rowlock.api")


class Server(uvicorn.Server):
    """A uvicorn server that does not handle signals: the process that runs it does."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def address(self) -> tuple[str, int]:
        host, port, *_ = self.servers[0].sockets[0].getsockname()
        return host, port


@asynccontextmanager
async def serving(client: Client) -> AsyncIterator[Server]:
    """Run a server while the block runs. At the end, open requests get a short time to finish."""
    await check_exposure(client)
    listening = _listen(client.settings.api)
    server = Server(_config(client))
    for name in ("uvicorn.error", "uvicorn.access"):  # they would log tickets and queries in URLs
        logging.getLogger(name).setLevel(logging.WARNING)
    running = asyncio.ensure_future(server.serve([listening]))
    try:
        while not server.started:
            await asyncio.wait({running}, timeout=0.01)
            if running.done():
                raise running.exception() or StoreError("the API server has stopped unexpectedly")
        log.info("API at http://%s:%d%s", *server.address, client.settings.api.base_path)
        yield server
    finally:
        server.config.app.state.service.feed.end()  # type: ignore[union-attr]  # `build` has made it
        server.should_exit = True
        await asyncio.gather(running, return_exceptions=True)


async def run_server(client: Client, started: Callable[[tuple[str, int]], Awaitable[None]]) -> None:
    """Serve until a stop signal; `started` is called once with the address on which the server listens."""
    with signals() as stopper:
        async with serving(client) as server:
            await started(server.address)
            stopper.service.ready()
            await stopper.asked.wait()


def _config(client: Client) -> uvicorn.Config:
    settings = client.settings.api
    return uvicorn.Config(
        build(client, alone=True),
        log_config=None,
        access_log=False,  # our own access log has no query strings
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        timeout_keep_alive=settings.idle_seconds,  # type: ignore[arg-type]  # it is only a delay
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=32_768,
        http=partial(StrictProtocol, body_seconds=settings.body_seconds),  # type: ignore[arg-type]  # it is only called
        ws="websockets-sansio",
        ws_max_size=65_536,
        ws_ping_interval=min(20.0, settings.idle_seconds),
        ws_ping_timeout=settings.idle_seconds,
        lifespan="on",
    )


def _listen(settings: ApiSettings) -> socket.socket:
    """Open the listening socket here, so that an address in use raises a ConfigError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol. With it, each answer after the
    # first of a connection waits 40 ms for the client's delayed ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen()  # two processes may bind one port at the same moment; only one of them may listen
    except OSError as error:
        listening.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(
            f"the API cannot listen on {where}: {error.strerror}; choose another --host or --port"
        ) from None
    return listening


async def check_exposure(client: Client) -> None:
    """Refuse to listen on a non-loopback address while no token exists."""
    settings = client.settings.api
    if is_loopback(settings.host) or settings.jwt is not None:
        return
    if not await (await client.store()).run(tokens.any_good()):
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, and there is no token yet; create one:"
            " rowlock tokens create --owner NAME --scope jobs"
        )
