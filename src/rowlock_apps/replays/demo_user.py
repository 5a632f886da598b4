"""A user of the demo: does over HTTP and WebSocket what a browser does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from rowlock import Rowlock


class Events:
    """A WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def next(self) -> dict[str, Any]:
        """The next event."""
        return dict(await self._socket.receive_json())


class User:
    """One browser that is logged in."""

    def __init__(self, name: str, base: str, http: aiohttp.ClientSession, csrf: str) -> None:
        self.name, self._base, self._http = name, base, http
        self._headers = {"Origin": base, "X-Rowlock-CSRF": csrf}

    async def ask(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """A request without a body: its status and its JSON."""
        async with self._http.request(method, self._base + path, headers=self._headers) as answer:
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, dict(await answer.json(content_type=None)) if is_json else {}

    async def download(self, job_id: str) -> bytes:
        """The file of a job."""
        async with self._http.get(f"{self._base}/api/jobs/{job_id}/result") as answer:
            answer.raise_for_status()
            return await answer.read()

    @asynccontextmanager
    async def events(self) -> AsyncIterator[Events]:
        """The events of this user's jobs, from now on."""
        address = f"{self._base.replace('http', 'ws', 1)}/api/ws"
        async with self._http.ws_connect(address, headers={"Origin": self._base}) as socket:
            yield Events(socket)


@asynccontextmanager
async def logged_in(app: Rowlock, base: str, name: str) -> AsyncIterator[User]:
    """A user who has opened a login link."""
    link = await app.login_link(name, base_url=base)
    jar = aiohttp.CookieJar(unsafe=True)  # also for an address without a name
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        once = link.partition("#once=")[2]
        async with http.post(f"{base}/api/session", json={"once": once}, headers={"Origin": base}) as answer:
            answer.raise_for_status()
            csrf = str((await answer.json())["csrf"])
        yield User(name, base, http, csrf)
