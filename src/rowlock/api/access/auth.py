"""Authentication: by a Rowlock bearer token, a JSON Web Token, the cookie of a session, or a function of the host
application.

Only verified tokens and sessions identify a sender. Headers such as X-User-Id are ignored.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from rowlock.api.access import cookies, tokens
from rowlock.api.access.sender import Asker, Caller
from rowlock.api.access.tokens import Kind
from rowlock.api.problems import Refusal, unauthorized
from rowlock.client.client import Client
from rowlock.core.errors import InvalidArguments, needs
from rowlock.core.option_checks import name

if TYPE_CHECKING:  # it needs a library that not everybody has
    from rowlock.api.access.jwt import JwtVerifier

Authenticate = Callable[[HTTPConnection], str | Awaitable[str | None] | None]

REMEMBERED_SECONDS = 2.0  # tokens are cached this long, so a revoked one is refused this late at most
REMEMBERED = 10_000

log = logging.getLogger("rowlock.api")


class Authenticator:
    """Finds the sender of a request. Rowlock tokens are cached briefly, so that not every request needs a query. `host`
    is the function of a host application that authenticates requests itself."""

    def __init__(self, client: Client, host: Authenticate | None = None) -> None:
        self._client, self._host = client, host
        self.has_sessions = host is None
        self._verifier: JwtVerifier | None = None
        if (settings := client.settings.api.jwt) is not None:
            with needs("jwt", "api.jwt needs a library"):
                from rowlock.api.access.jwt import JwtVerifier
            self._verifier = JwtVerifier(settings)
        self._known: OrderedDict[tuple[str, Kind], tuple[float, Asker | None]] = OrderedDict()

    async def asker_of(self, connection: HTTPConnection) -> Asker | None:
        """The sender of this request; None if it has no valid credentials."""
        if self._host is not None:
            return await self._asker_of_host(self._host, connection)
        given = connection.headers.getlist("authorization")
        if not given:
            return await self._asker_of_cookie(connection)
        kind, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return await self.asker_of_token(secret.strip()) if kind.lower() == "bearer" else None

    async def caller_of(self, connection: HTTPConnection) -> Caller:
        """Who sent a request to a route of the host application, by the tokens and sessions of the job API;
        HTTPException (401, 403) without valid credentials, or if a foreign page sent it."""
        asker = connection.scope.get("state", {}).get("asker")
        if not isinstance(asker, Asker):  # a route of the host application
            try:
                cookies.check_origin(connection, self._client.settings.api)
                asker = await self.asker_of(connection)
                if asker is None:
                    raise unauthorized()
                cookies.check_session(connection, asker)
            except Refusal as refusal:
                raise HTTPException(refusal.status, refusal.detail, refusal.headers) from None
        if asker.job_id is not None:
            raise HTTPException(403, "this token can only read one job")
        return Caller(asker.owner_name, asker.scope, asker.may_change)

    async def _asker_of_host(self, host: Authenticate, connection: HTTPConnection) -> Asker | None:
        """The sender according to the host application, whose function may raise its framework's 401 or 403."""
        try:
            answer = host(connection)
            owner = await answer if inspect.isawaitable(answer) else answer
        except HTTPException as refused:
            if refused.status_code in (401, 403):
                return None
            raise
        try:
            return None if owner is None else Asker(name(owner, "the owner that authenticate() answers"))
        except InvalidArguments as error:
            if not isinstance(owner, str):
                raise
            log.warning("a request was refused: %s", error)  # a stranger may have chosen a name that nobody can have
            return None

    async def _asker_of_cookie(self, connection: HTTPConnection) -> Asker | None:
        secret = cookies.session_in(connection)
        if secret is None or not cookies.may_count(connection):
            return None
        return await self._asker_of_secret(secret, "session")

    def forget(self, token_id: str) -> None:
        """Remove a session that was ended from the cache at once."""
        for key, (_, asker) in list(self._known.items()):
            if asker is not None and asker.token_id == token_id:
                del self._known[key]

    async def asker_of_token(self, secret: str) -> Asker | None:
        """The sender who uses this token. None if the token is unknown, revoked or expired, or if the host application
        authenticates requests itself."""
        if self._host is not None or not secret or len(secret) > 8192 or not secret.isascii():
            return None
        if secret.startswith(tokens.PREFIX):
            return await self._asker_of_secret(secret, "token")
        return None if self._verifier is None else await self._verifier.asker_of(secret)

    async def _asker_of_secret(self, secret: str, kind: Kind) -> Asker | None:
        now, key = time.monotonic(), (tokens.hash_of(secret), kind)
        if (known := self._known.get(key)) is not None and known[0] > now:
            return known[1]
        token = await (await self._client.store()).run(tokens.find(secret, kind))
        csrf = cookies.csrf_of(secret) if kind == "session" else None
        asker = None if token is None else Asker.of(token, csrf)
        self._known[key] = (now + REMEMBERED_SECONDS, asker)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return asker
