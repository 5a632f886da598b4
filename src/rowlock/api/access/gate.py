"""Checks of every request before a route gets it: Host and Origin headers, body size, authentication, rate limit.

They are made in one middleware in front of all routes, so that no route can forget one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from anyio import BrokenResourceError
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.api.access.cookies import READING, check_origin, check_session, may_come_from
from rowlock.api.context import Service
from rowlock.api.pages import Pages
from rowlock.api.problems import UNUSABLE, Refusal, unauthorized, unavailable
from rowlock.core.config import ApiSettings
from rowlock.public_web import LOOPBACK, without_port
from rowlock.signals.logs import one_line

access = logging.getLogger("rowlock.api.access")

GONE = 499  # logged as the status if the client disconnected before the end of its request
OPEN = ("/livez", "/readyz", "/api/openapi.json")  # need no token: they reveal nothing about jobs
LOGIN = ("POST", "/api/session")  # has the secret of a login link in its body, and needs no token
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class RequestGate:
    """ASGI middleware around the routes. `alone`: this is the whole application and not mounted in another one, so the
    Host header is checked, and `api.base_path` is the prefix of all routes. `pages` are files that anybody may read.
    `is_ours`: whether a request is for a route of Rowlock. Only such routes can do without a token; one that the
    application has added needs a token even at the same path."""

    def __init__(
        self, app: ASGIApp, service: Service, is_ours: Callable[[Scope], bool], pages: Pages | None, alone: bool
    ) -> None:
        self._app, self._service, self._is_ours, self._pages = app, service, is_ours, pages
        self._settings, self._alone = service.settings, alone
        self._prefix = service.settings.base_path if alone else ""
        self._hosts = {name.lower() for name in (*LOOPBACK, service.settings.host, *service.settings.allowed_hosts)}
        self._askers = Buckets(service.settings.requests_per_minute)
        self._addresses = Buckets(service.settings.address_requests_per_minute)
        self._strangers = Buckets(service.settings.stranger_requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["rowlock"] = self._service
        if self._prefix:  # a proxy may have removed the prefix, or kept it
            scope["root_path"] = self._prefix
            if not f"{scope['path']}/".startswith(f"{self._prefix}/"):
                scope["path"] = self._prefix + scope["path"]
        if scope["type"] == "websocket":
            # A WebSocket authenticates by a ticket or its first message; its route checks that.
            # Without the check of the origin, a foreign page could open sockets and change jobs with credentials that
            # browsers add by themselves, such as a cookie of the host application.
            welcome = self._known_host(scope) and may_come_from(HTTPConnection(scope), self._settings.cors_origins)
            try:
                self._addresses.spend(_address(scope))
                await (self._app if welcome else _deny)(scope, receive, send)
            except Refusal as refusal:
                await receive()
                await refusal.response()(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._addresses.spend(_address(scope))
            if self._prefix and scope["path"] == self._prefix:
                # Links in the dashboard are relative, so its own address must end in a slash.
                await RedirectResponse(f"{self._prefix}/", 307)(scope, receive, answer)
                return
            await self._check(scope)
            body = await read_body(scope, receive, self._settings)
            if body is None:
                status = GONE
            else:
                await self._serve(scope, body, answer)
        except Refusal as refusal:
            await refusal.response()(scope, receive, answer)
        except UNUSABLE:  # during authentication; errors of routes are handled by the application
            await unavailable().response()(scope, receive, answer)
        finally:
            if access.isEnabledFor(logging.INFO):
                milliseconds = (time.monotonic() - started) * 1000
                # The path without its query, which may contain secrets.
                access.info("%s %s %d %.0f ms", scope["method"], one_line(scope["path"]), status, milliseconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except* BrokenResourceError:
            # FastAPI raises it when the client of an event stream leaves while an event waits to be sent to it. That
            # isn't an error, and the server would log a long traceback.
            pass

    async def _check(self, scope: Scope) -> None:
        if not self._known_host(scope):
            raise Refusal(
                "INVALID_HOST", "if clients should reach the server by this Host name, add it to api.allowed_hosts"
            )
        connection = HTTPConnection(scope)
        check_origin(connection, self._settings)
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        is_login = (scope["method"], path) == LOGIN
        if (is_login or self._is_open(scope["method"], path)) and self._is_ours(scope):
            if is_login:
                self._strangers.spend(_address(scope))
            return
        asker = await self._service.authenticator.asker_of(connection)
        if asker is None:
            self._strangers.spend(_address(scope))
            raise unauthorized()
        check_session(connection, asker)
        self._askers.spend(asker.key)
        scope["state"]["asker"] = asker

    def _is_open(self, method: str, path: str) -> bool:
        if path in OPEN or (path == "/metrics" and self._settings.metrics_open):
            return True
        return self._pages is not None and method in READING and path in self._pages

    def _known_host(self, scope: Scope) -> bool:
        """Whether the Host header names this server. Without this check, a web page could reach a server on the
        loopback address under the page's own host name (DNS rebinding)."""
        if not self._alone:
            return True
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return len(given) == 1 and without_port(given[0]).lower() in self._hosts


async def read_body(scope: Scope, receive: Receive, settings: ApiSettings) -> Receive | None:
    """Read the whole body before a route gets the request, and refuse one that is too large or too slow. The returned
    function gives the body once, and then reports when the client disconnects. None if the client disconnected before
    the end of the body: what it sent so far might look like a complete request."""
    headers = HTTPConnection(scope).headers
    announced = "content-length" in headers or "transfer-encoding" in headers
    if not announced and scope.get("http_version") in ("1.0", "1.1"):
        return receive  # HTTP/1 without either header: there is no body
    length = headers.get("content-length", "0")
    parts, more = list[bytes](), True
    left = -1 if length.isdecimal() and int(length[:20]) > settings.body_bytes else settings.body_bytes
    try:
        async with asyncio.timeout(settings.body_seconds):
            while more and left >= 0:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                left, more = left - len(parts[-1]), message.get("more_body", False)
    except TimeoutError:
        raise Refusal("REQUEST_TIMEOUT", headers={"Connection": "close"}) from None
    if left < 0:
        limit = f"the limit is {settings.body_bytes:,} bytes"
        raise Refusal("BODY_TOO_LARGE", limit, headers={"Connection": "close"})
    body = b"".join(parts)
    if "json" in headers.get("content-type", "").lower():
        refuse_repeated_names(body)
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return next(whole, None) or await receive()

    return again


def refuse_repeated_names(body: bytes) -> None:
    """Refuse JSON with a repeated name in an object. Programs disagree about which of the two values counts, so a proxy
    may have checked one while a route uses the other. The route itself refuses a body that is not JSON."""

    def checked(pairs: list[tuple[str, Any]]) -> None:
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                raise Refusal("REPEATED_NAME", f"{name!r:.100} appears twice in one object of the body")
            seen.add(name)

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=checked)


class Buckets:
    """Token buckets in this process, one for each key; the least recently used ones are forgotten."""

    MOST = 20_000

    def __init__(self, per_minute: int) -> None:
        self._rate, self._size = per_minute / 60, max(1.0, per_minute / 6)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, key: str) -> None:
        """Take a token, or refuse the request."""
        now = time.monotonic()
        level, at = self._levels.pop(key, (self._size, now))
        level = min(self._size, level + (now - at) * self._rate)
        self._levels[key] = (max(level - 1, 0.0) if level >= 1 else level, now)
        while len(self._levels) > self.MOST:
            self._levels.popitem(last=False)
        if level < 1:
            wait = int((1 - level) / self._rate) + 1
            raise Refusal("TOO_MANY_REQUESTS", headers={"Retry-After": str(wait)})


def _address(scope: Scope) -> str:
    """The client's address; behind a trusted proxy, the one that the proxy reports."""
    return str((scope.get("client") or ("",))[0])


async def _deny(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008, "reason": "unknown host or origin"})
