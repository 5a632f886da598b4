"""HTTP and WebSocket clients that cost little themselves: what is measured is the server."""

import asyncio
import base64
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

Ask = Callable[[int], tuple[str, str]]  # the number of a request -> its path and token


class Connection:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def get(self, path: str, token: str) -> bytes:
        """The body of an answer, which must be a 200."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"GET {path}: {head[:40]!r} {body[:300]!r}")
        return body

    def close(self) -> None:
        self._writer.close()


async def latencies(port: int, ask: Ask, requests: int, connections: int = 2) -> list[float]:
    """Milliseconds of as many requests, some at the same time."""
    found: list[float] = []
    numbers = iter(range(requests))

    async def one_after_the_other() -> None:
        connection = await Connection.open(port)
        for number in numbers:
            began = time.perf_counter()
            await connection.get(*ask(number))
            found.append((time.perf_counter() - began) * 1000)
        connection.close()

    await asyncio.gather(*(one_after_the_other() for _ in range(connections)))
    return found


async def rate(port: int, ask: Ask, seconds: float, connections: int = 4) -> float:
    """Requests a second."""
    done, end = 0, time.perf_counter() + seconds

    async def one_after_the_other(first: int) -> None:
        nonlocal done
        connection, number = await Connection.open(port), first
        while time.perf_counter() < end:
            await connection.get(*ask(number))
            number, done = number + connections, done + 1
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other(first) for first in range(connections)))
    return done / (time.perf_counter() - began)


class Socket:
    """A WebSocket's client end: it only listens."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int, token: str, buffer: int | None = None) -> "Socket":
        """A socket that has been told `ready`; with a receive buffer of `buffer` bytes, if it must be small."""
        raw = socket.socket()
        if buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        found = cls(*await asyncio.open_connection(sock=raw, limit=buffer or 65_536))
        key = base64.b64encode(os.urandom(16)).decode()
        found._writer.write(
            f"GET /api/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        head = await found._reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head:
            raise RuntimeError(f"no WebSocket: {head[:60]!r}")
        ready = await found.next()
        if ready["type"] != "ready":
            raise RuntimeError(f"no WebSocket: {ready}")
        return found

    async def next(self) -> dict[str, Any]:
        """The next message. A ping of the server is passed over: a measure ends before it misses the answer."""
        while True:
            kind, length = await self._reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await self._reader.readexactly(2))
            elif length == 127:
                length = int.from_bytes(await self._reader.readexactly(8))
            payload = await self._reader.readexactly(length)
            if kind & 15 == 1:
                return dict(json.loads(payload))
            if kind & 15 == 8:
                raise ConnectionError(f"closed with {int.from_bytes(payload[:2])}")

    def close(self) -> None:
        self._writer.close()


async def sockets(port: int, tokens: Sequence[str]) -> list[Socket]:
    """One for each token, opened twenty at a time."""
    found: list[Socket] = []
    for at in range(0, len(tokens), 20):
        found += await asyncio.gather(*(Socket.open(port, token) for token in tokens[at : at + 20]))
    return found
