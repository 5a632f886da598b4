"""Login links and the sessions that they open. Only hashes are stored; a session is a row of `tokens`."""

from __future__ import annotations

from rowlock.store.engines.operation import Call, Steps, operation
from rowlock.store.ids import new_id
from rowlock.store.tokens import Scope, Token, hash_of, hint_of, token_of


@operation()
def create_link(secret: str, owner: str | None, scope: Scope, ttl: float) -> Steps[None]:
    """Store a login link that opens one session within `ttl` seconds."""
    yield Call("forget_links")
    yield Call("create_link", hash=hash_of(secret), owner=owner, scope=scope, ttl=ttl)


@operation()
def open_session(link: str, secret: str, ttl: float) -> Steps[Token | None]:
    """Use a login link up and store the session that it opens, in one transaction; None if the link is unknown,
    expired or already used."""
    links = yield Call("use_link", hash=hash_of(link))
    if not links:
        return None
    rows = yield Call(
        "create_session",
        id=new_id(),
        hash=hash_of(secret),
        hint=hint_of(secret),
        owner=links[0].owner,
        scope=links[0].scope,
        ttl=ttl,
    )
    return token_of(rows[0])


@operation(single=True)
def open_session_from(token: str, secret: str, ttl: float) -> Steps[Token | None]:
    """Store a session with the rights of a token, which ends with the token at the latest; None if the token is not
    valid, or opens one job alone."""
    rows = yield Call(
        "create_session_from", token=hash_of(token), id=new_id(), hash=hash_of(secret), hint=hint_of(secret), ttl=ttl
    )
    return token_of(rows[0]) if rows else None
