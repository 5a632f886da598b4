"""Sessions of browsers: a one-time login link is exchanged for a cookie.

The link has its secret behind `#`: that part of an address stays in the browser, so no log and no Referer header has
it. The page sends it by POST: a mail scanner or a preview that opens the address does not use it up.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import Request, Response
from pydantic import Field

from rowlock.api.access import cookies, tokens
from rowlock.api.access.sender import Asker
from rowlock.api.access.tokens import Scope
from rowlock.api.context import ActingOperator, Service, Serving, Who, address_of, api_router
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import Shape
from rowlock.store import audit

router = api_router(prefix="/api/session", tags=["session"])


class LoginShape(Shape):
    """The secret of a login link, or a token that somebody has typed in."""

    once: str | None = Field(
        default=None, min_length=1, max_length=200, description="What follows `#once=` in the link"
    )
    token: str | None = Field(default=None, min_length=1, max_length=200, description="Made by `rowlock tokens create`")


class SessionShape(Shape):
    """Who asks, and what they may do."""

    owner: str | None = Field(description="Whose jobs; null for an operator, who sees all")
    scope: Scope
    may_change: bool
    zone: str = Field(examples=["Asia/Seoul"], description="Of the times in answers")
    expires_at: datetime | None = None
    csrf: str | None = Field(default=None, description="To be sent as X-Rowlock-CSRF with all that changes something")


@router.post("", status_code=201, responses=documented("INVALID_JSON", "BODY_TOO_LARGE", "FORBIDDEN"))
async def log_in(body: LoginShape, request: Request, response: Response, service: Serving) -> SessionShape:
    """Exchange a login link or a token for a session. The browser keeps it in a cookie that scripts cannot read."""
    if not cookies.may_come_from(request, ()):
        raise Refusal("INVALID_ORIGIN", "only a page of this server can log in")
    if not service.authenticator.has_sessions:
        raise Refusal("FORBIDDEN", "the application in which this API is mounted authenticates requests; log in there")
    secret, seconds, address = tokens.new_secret(), service.settings.session_seconds, address_of(request)
    if body.once is not None and body.token is None:
        opened = tokens.open_session("link", body.once, secret, seconds, address)
        wrong = "this login link is unknown, used or too old"
    elif body.token is not None and body.once is None:
        opened = tokens.open_session("token", body.token, secret, seconds, address)
        wrong = "this token is not valid"
    else:
        raise Refusal("INVALID_REQUEST", "send either `once` or `token`")
    session = await service.run(opened)
    if session is None:
        raise Refusal("UNAUTHORIZED", f"{wrong}; ask for a new one")
    cookies.set_cookie(request, response, secret, seconds)
    return _shown(service, Asker.of(session, cookies.csrf_of(secret)))


@router.get("", responses=documented())
async def get_session(service: Serving, asker: Who) -> SessionShape:
    """Who I am, by cookie or token."""
    return _shown(service, asker)


@router.delete("", status_code=204, response_class=Response, responses=documented("FORBIDDEN"))
async def log_out(request: Request, service: Serving, asker: Who, operator: ActingOperator) -> Response:
    """End this session. Its open connections are closed within five seconds."""
    if asker.csrf is None or asker.token_id is None:
        raise Refusal("FORBIDDEN", "this isn't a session; rowlock tokens revoke ends a token")
    revoked = tokens.revoke(asker.token_id)
    if operator is not None:
        revoked = audit.audited(revoked, operator, "sessions.end", asker.token_id)
    await service.run(revoked)
    service.authenticator.forget(asker.token_id)
    response = Response(status_code=204)
    cookies.clear_cookie(request, response)
    return response


def _shown(service: Service, asker: Asker) -> SessionShape:
    expires_at = asker.expires_at if asker.good_until is None else datetime.fromtimestamp(asker.good_until, UTC)
    return SessionShape(
        owner=asker.owner_name,
        scope=asker.scope,
        may_change=asker.may_change,
        zone=service.settings.zone,
        expires_at=None if expires_at is None else expires_at.astimezone(service.zone),
        csrf=asker.csrf,
    )
