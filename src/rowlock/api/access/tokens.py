"""Tokens of the job API, login links and the sessions that they open, one-time tickets. Only their hashes are stored. A
session is a row of `tokens`, too: its token is in the cookie of a browser."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from rowlock.store import audit
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record

Scope = Literal["jobs", "operator", "operator:read"]
Kind = Literal["token", "session"]
SCOPES: tuple[Scope, ...] = ("jobs", "operator", "operator:read")
PREFIX = "rowlock_"  # lets secret scanners recognise a token that was published by mistake
HINT = len(PREFIX) + 6


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token, without its secret."""

    id: str
    kind: Kind
    hint: str
    owner: str | None
    scope: Scope
    job_id: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def new_secret() -> str:
    """A new token of 256 random bits. It must be shown to its user now: it is not stored."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """The hash that is stored instead of a token. Tokens are random, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


@operation(single=True)
def create(
    secret: str, owner: str | None, scope: Scope, ttl: float | None = None, job_id: str | None = None
) -> Steps[str]:
    """Store the hash of a token; returns the token's id."""
    stored = _stored(secret)
    yield Call("create_token", owner=owner, scope=scope, job_id=job_id, ttl=ttl, **stored)
    return stored["id"]


def _stored(secret: str) -> dict[str, str]:
    """A new id, and what is stored of a token: its hash, and its first characters, which are enough to recognise it
    in a list and not enough to guess it."""
    return {"id": new_id(), "hash": hash_of(secret), "hint": secret[:HINT]}


@operation(read=True, hot=True)
def find(secret: str, kind: Kind = "token") -> Steps[Token | None]:
    """The token, if it is of this kind and valid: not revoked, and not expired by the database's clock."""
    rows = yield Call("find_token", hash=hash_of(secret), kind=kind)
    return record(Token, rows[0]) if rows else None


@operation(read=True)
def tokens(limit: int = 1000) -> Steps[list[Token]]:
    """Tokens made with `rowlock tokens create`, and sessions, newest first."""
    return [record(Token, row) for row in (yield Call("list_tokens", n=limit))]


@operation(repeatable=True)
def revoke(which: str) -> Steps[list[str]]:
    """Revoke tokens by id, by hint (first characters) or by the token itself; returns the ids of the revoked ones."""
    named = hash_of(which) if which.startswith(PREFIX) and len(which) > HINT else which
    return [row.id for row in (yield Call("revoke_tokens", which=named))]


@operation(read=True)
def still_good(ids: Sequence[str]) -> Steps[set[str]]:
    """The ids of those tokens that are still valid."""
    return {row.id for row in (yield Call("good_tokens", asked=[(token_id,) for token_id in ids]))}


@operation(read=True)
def any_good() -> Steps[bool]:
    """Whether there is at least one valid token."""
    return bool((yield Call("any_token")))


# --- login links and sessions


@operation()
def create_link(secret: str, owner: str | None, scope: Scope, ttl: float) -> Steps[None]:
    """Store a login link that opens one session within `ttl` seconds."""
    yield Call("forget_links")
    yield Call("create_link", hash=hash_of(secret), owner=owner, scope=scope, ttl=ttl)


@operation()
def open_session(link: str, secret: str, ttl: float, address: str | None = None) -> Steps[Token | None]:
    """Use a login link up and store the session that it opens, in one transaction; None if the link is unknown,
    expired or already used. The session of an operator, opened from `address`, is in the audit."""
    links = yield Call("use_link", hash=hash_of(link))
    if not links:
        return None
    rows = yield Call("create_session", owner=links[0].owner, scope=links[0].scope, ttl=ttl, **_stored(secret))
    return (yield from _opened(record(Token, rows[0]), address))


@operation()
def open_session_from(token: str, secret: str, ttl: float, address: str | None = None) -> Steps[Token | None]:
    """Store a session with the rights of a token, which ends with the token at the latest; None if the token is not
    valid, or opens one job alone. The session of an operator, opened from `address`, is in the audit."""
    rows = yield Call("create_session_from", token=hash_of(token), ttl=ttl, **_stored(secret))
    return (yield from _opened(record(Token, rows[0]), address)) if rows else None


def _opened(session: Token, address: str | None) -> Steps[Token]:
    if session.owner is None:
        actor = audit.Actor(f"token {session.id}", "api", address)
        yield from audit.write(actor, "sessions.open", session.id, details={"scope": session.scope})
    return session


# --- tickets


class Ticket(NamedTuple):
    """What a one-time ticket gives access to: the rights of the token that asked for it."""

    owner: str | None
    scope: Scope
    token_id: str | None
    job_id: str | None
    good_until: float | None = None  # when the JSON Web Token that asked for it expires, in seconds since 1970


@operation()
def create_ticket(secret: str, ticket: Ticket, ttl: float) -> Steps[None]:
    """Store a ticket that can be used once within `ttl` seconds."""
    yield Call("forget_tickets")
    yield Call("create_ticket", hash=hash_of(secret), ttl=ttl, **ticket._asdict())


@operation(single=True)
def use_ticket(secret: str) -> Steps[Ticket | None]:
    """Use a ticket and delete it; None if it is unknown, expired or already used."""
    rows = yield Call("use_ticket", hash=hash_of(secret))
    return record(Ticket, rows[0]) if rows else None
