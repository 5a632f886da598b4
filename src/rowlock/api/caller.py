"""Who sent a request to a route of the host application, by the tokens and sessions of the job API."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from rowlock.api.asker import Asker, Caller
from rowlock.api.auth import Authenticator
from rowlock.api.cookies import check_origin, check_session
from rowlock.api.problems import Refusal, unauthorized
from rowlock.core.config import ApiSettings
from rowlock.store.owned import EVERYONE


async def caller_of(connection: HTTPConnection, authenticator: Authenticator, settings: ApiSettings) -> Caller:
    """Who sent this request; HTTPException (401, 403) when nobody knows, or when a page of somebody else sent it."""
    asker = connection.scope.get("state", {}).get("asker")
    if not isinstance(asker, Asker):  # the route does not stand behind the gate of the API
        try:
            asker = await _known(connection, authenticator, settings)
        except Refusal as refusal:
            raise HTTPException(refusal.status, refusal.detail, refusal.headers) from None
    if asker.job_id is not None:
        raise HTTPException(403, "this token can only read one job")
    return Caller(None if asker.owner is EVERYONE else str(asker.owner), asker.scope, asker.may_change)


async def _known(connection: HTTPConnection, authenticator: Authenticator, settings: ApiSettings) -> Asker:
    check_origin(connection, settings)
    asker = await authenticator.asker_of(connection)
    if asker is None:
        raise unauthorized()
    check_session(connection, asker)
    return asker
