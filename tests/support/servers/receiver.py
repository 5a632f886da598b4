"""A receiver of webhooks: a real HTTP server on the loopback that answers as it is told and keeps what it got."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook


@dataclasses.dataclass
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes
    path: str

    def verified(self, secret: str) -> Any:
        """The message, if this secret has signed it; raises WebhookVerificationError if not."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclasses.dataclass
class Receiver:
    """Answers the given statuses in turn, and the last one for ever."""

    port: int
    statuses: list[int]
    headers: dict[str, str]
    got: list[Received] = dataclasses.field(default_factory=list)
    came: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    base: str = "http://127.0.0.1"

    def url(self, path: str = "/hook") -> str:
        """Where it listens."""
        return f"{self.base}:{self.port}{path}"

    async def receive(self, count: int, seconds: float = 60) -> list[Received]:
        """What came, once it is this many."""
        async with asyncio.timeout(seconds):
            while len(self.got) < count:
                self.came.clear()
                await self.came.wait()
        return self.got


@asynccontextmanager
async def receiving(
    statuses: Sequence[int] = (204,),
    headers: dict[str, str] | None = None,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Receiver]:
    """A receiver for the time of a block; with `tls` at https://localhost."""
    base = "http://127.0.0.1" if tls is None else "https://localhost"
    receiver = Receiver(port, list(statuses), headers or {}, base=base)

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        received = {name.lower(): text for name, text in request.headers.items()}
        receiver.got.append(Received(received, body, request.path_qs))
        receiver.came.set()
        status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
        return web.Response(status=status, headers=receiver.headers)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True, ssl_context=tls)
        await site.start()
        receiver.port = runner.addresses[0][1]
        yield receiver
    finally:
        await runner.cleanup()
