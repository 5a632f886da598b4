"""A web on loopback: many hosts behind one port, for the demo and the tests. Not a packet leaves the machine.

`resolve` and `dial` are what a fetcher is given: names have public addresses, and the socket for any of them goes to
our own server, which distinguishes hosts by the Host header and counts who asks for what at the same time.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

Send = Callable[[bytes], Awaitable[None]]
Behaviour = Callable[[Send], Awaitable[None]]
Pages = Mapping[str, Behaviour]  # by host and path: "news.example/a"
PUBLIC = "93.184.215.14"
LONGEST_REQUEST = 64 << 10


def page(title: str, *, head: str = "", status: str = "200 OK", wait: float = 0.0, **headers: str) -> Behaviour:
    """An ordinary page."""
    html = f"<!doctype html><html><head><meta charset=utf-8><title>{title}</title>{head}</head><body>text</body></html>"
    return answer(html.encode(), status=status, wait=wait, Content_Type="text/html; charset=utf-8", **headers)


def answer(body: bytes = b"", *, status: str = "200 OK", wait: float = 0.0, **headers: str) -> Behaviour:
    """Any answer, after a while."""

    async def send_it(send: Send) -> None:
        await asyncio.sleep(wait)
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await send("\r\n".join([*lines, "", ""]).encode() + body)

    return send_it


def redirect(location: str) -> Behaviour:
    """To somewhere else."""
    return answer(status="302 Found", Location=location)


def robots(text: str) -> Behaviour:
    """A robots.txt."""
    return answer(text.encode(), Content_Type="text/plain")


def bomb(packed: int) -> Behaviour:
    """This many bytes of gzip, which unpack to a thousand times as many."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    zeros = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # may be repeated any number of times
    start = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

    async def send_it(send: Send) -> None:
        await send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
        await send(start)
        for _ in range(packed // len(zeros)):
            await send(zeros)

    return send_it


def endless(line: bytes = b"<meta name=a content=b>\n" * 100, pause: float = 0.0) -> Behaviour:
    """A page without end."""

    async def send_it(send: Send) -> None:
        await send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await send(b"%x\r\n%b\r\n" % (len(line), line))
            await asyncio.sleep(pause)

    return send_it


class SmallWeb:
    """The server; made by `small_web`."""

    def __init__(self, pages: Pages, addresses: Mapping[str, list[str]]) -> None:
        self._pages, self._addresses = pages, addresses
        self.port = 0
        self.asked: Counter[str] = Counter()  # requests, by host and path
        self.resolved: Counter[str] = Counter()
        self.dialled: list[str] = []
        self.most: Counter[str] = Counter()  # by host: most requests at the same time
        self._now: Counter[str] = Counter()
        self.serving: set[asyncio.Task[Any] | None] = set()

    async def resolve(self, host: str) -> list[str]:
        """Every name has a public address, unless it was given another."""
        self.resolved[host] += 1
        return self._addresses.get(host, [PUBLIC])

    def dial(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket that connects to this server, whatever address it is given."""
        self.dialled.append(str(info[4][0]))
        return to_loopback(self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        host = ""
        self.serving.add(asyncio.current_task())
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = lines[0].split(" ")[1]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            host = headers.get("host", "")
            self.asked[host + path] += 1
            self._now[host] += 1
            self.most[host] = max(self.most[host], self._now[host])
            await self._pages.get(host + path, self._pages.get(host, NOT_FOUND))(send)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass  # the client has closed the connection, or sent no HTTP
        except asyncio.CancelledError:
            pass  # the web ends
        finally:
            self.serving.discard(asyncio.current_task())
            self._now[host] -= 1
            writer.close()


NOT_FOUND = answer(b"not here", status="404 Not Found", Content_Type="text/plain")


def to_loopback(port: int) -> socket.socket:
    """A socket that connects to a port of this machine, whatever address it is given."""

    class Routed(socket.socket):
        def connect(self, address: Any) -> None:
            super().connect(("127.0.0.1", port))

    return Routed(socket.AF_INET, socket.SOCK_STREAM)


@asynccontextmanager
async def small_web(pages: Pages, addresses: Mapping[str, list[str]] | None = None) -> AsyncIterator[SmallWeb]:
    """A web for the time of a block. A key is `host/path`, or `host` for all its other paths."""
    web = SmallWeb(pages, addresses or {})
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0, limit=LONGEST_REQUEST)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        for task in filter(None, [*web.serving]):
            task.cancel()
