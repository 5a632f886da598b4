"""Tokens and one-time tickets of the job API. Only their hashes are stored. A token is the bearer's, or a browser's
session, which `sessions` opens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from rowlock.store.engines.operation import Call, Row, Steps, operation
from rowlock.store.ids import new_id
from rowlock.store.times import moment

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


def hint_of(secret: str) -> str:
    """The first characters of a token: enough to recognise it in a list, and not enough to guess it."""
    return secret[:HINT]


def hash_of(secret: str) -> str:
    """The hash that is stored instead of a token. Tokens are random, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


@operation(single=True)
def create(
    secret: str, owner: str | None, scope: Scope, ttl: float | None = None, job_id: str | None = None
) -> Steps[str]:
    """Store the hash of a token; returns the token's id."""
    token_id = new_id()
    yield Call(
        "create_token",
        id=token_id,
        hash=hash_of(secret),
        hint=hint_of(secret),
        owner=owner,
        scope=scope,
        job_id=job_id,
        ttl=ttl,
    )
    return token_id


@operation(read=True, hot=True)
def find(secret: str, kind: Kind = "token") -> Steps[Token | None]:
    """The token, if it is of this kind and valid: not revoked, and not expired by the database's clock."""
    rows = yield Call("find_token", hash=hash_of(secret), kind=kind)
    return token_of(rows[0]) if rows else None


@operation(read=True)
def tokens(limit: int = 1000) -> Steps[list[Token]]:
    """Tokens made with `rowlock tokens create`, and sessions, newest first."""
    return [token_of(row) for row in (yield Call("list_tokens", n=limit))]


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


@operation(single=True, repeatable=True)
def prune(n: int) -> Steps[int]:
    """Delete up to `n` tokens that expired or were revoked long ago."""
    return len((yield Call("prune_tokens", n=n)))


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
    return Ticket(*(getattr(rows[0], field) for field in Ticket._fields)) if rows else None


def token_of(row: Row) -> Token:
    """A stored token, from its row."""
    times = (moment(row.created_at), moment(row.expires_at), moment(row.revoked_at))
    return Token(row.id, row.kind, row.hint, row.owner, row.scope, row.job_id, *times)
