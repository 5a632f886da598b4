"""Tokens of the job API, login links and the sessions that they open, tickets for WebSockets: one table, which has only
their hashes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from rowlock.core.config import ApiSettings
from rowlock.core.errors import InvalidArguments
from rowlock.core.option_checks import name
from rowlock.store import audit
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Operation, Row, Steps, operation
from rowlock.store.engine.records import record

if TYPE_CHECKING:
    from rowlock.api.access.sender import Asker

Scope = Literal["jobs", "operator", "operator:read"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Kind = Literal["token", "session", "link", "ticket"]
USES: dict[Kind, int] = {"link": 1, "ticket": 1}  # the others can be used any number of times
PREFIX = "rowlock_"  # lets secret scanners recognise a token that was published by mistake
HINT = len(PREFIX) + 6
LINK_SECONDS = 600.0
EVERYWHERE = ("0.0.0.0", "::")  # not an address that a browser can open


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


def _create(kind: Kind, secret: str, owner: str | None, scope: Scope, ttl: float | None, **more: Any) -> Steps[Token]:
    """Store a token: its hash, and its first characters, which are enough to recognise it in a list and not enough to
    guess it."""
    given = {"job_id": None, "made_from": None, "good_until": None, "until": None} | more
    given |= {"owner": owner, "scope": scope, "ttl": ttl, "uses": USES.get(kind)}
    rows = yield Call("create_token", id=new_id(), hash=hash_of(secret), hint=secret[:HINT], kind=kind, **given)
    return record(Token, rows[0])


@operation(single=True)
def create(
    secret: str,
    owner: str | None,
    scope: Scope,
    ttl: float | None = None,
    job_id: str | None = None,
    kind: Kind = "token",
) -> Steps[str]:
    """Store a token; returns its id."""
    return (yield from _create(kind, secret, owner, scope, ttl, job_id=job_id)).id


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
    return {row.id for row in (yield Call("good_tokens", asked=[(token_id,) for token_id in ids]))}


@operation(read=True)
def any_good() -> Steps[bool]:
    return bool((yield Call("any_token")))


# --- login links and sessions


def login_link(
    settings: ApiSettings, owner: str | None, scope: Scope | None, base_url: str | None
) -> tuple[str, Operation[str]]:
    """A link that opens one session within ten minutes, and the operation that stores it. The secret is behind `#`:
    browsers don't send that part of an address to a server."""
    scope = scope or ("operator" if owner is None else "jobs")
    if scope not in SCOPES:
        raise InvalidArguments(f"scope must be one of {', '.join(SCOPES)}, not {scope!r}")
    if (scope == "jobs") != (owner is not None):
        needs = "needs an owner" if scope == "jobs" else "shows the jobs of all owners and takes no owner"
        raise InvalidArguments(f"a login link of scope {scope} {needs}")
    if owner is not None:
        name(owner, "owner")
    secret = new_secret()
    address = _address_of(settings) if base_url is None else _checked(base_url)
    return f"{address}/#once={secret}", create(secret, owner, scope, LINK_SECONDS, kind="link")


def _address_of(settings: ApiSettings) -> str:
    if settings.port == 0:
        raise InvalidArguments("api.port is 0 (any free port), so the address of the API is not known: give base_url")
    host = "localhost" if settings.host in EVERYWHERE else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}{settings.base_path}"


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise InvalidArguments(f"base_url must be such as https://jobs.example.com/rowlock, not {url!r}")
    return url.rstrip("/")


@operation()
def open_session(
    kind: Literal["link", "token"], given: str, secret: str, ttl: float, address: str | None = None
) -> Steps[Token | None]:
    """Store the session that a login link or a token opens; it ends with the token at the latest. None if the link is
    unknown, expired or already used, and if the token is not valid or opens only one job. The session of an operator,
    opened from `address`, is in the audit."""
    rows = yield Call("use_token" if kind == "link" else "find_token", hash=hash_of(given), kind=kind)
    if not rows or rows[0].job_id is not None:
        return None
    found = record(Token, rows[0])
    until = None if kind == "link" else found.expires_at
    session = yield from _create("session", secret, found.owner, found.scope, ttl, made_from=found.id, until=until)
    if session.owner is None:
        actor = audit.Actor(f"token {session.id}", "api", address)
        yield from audit.write(actor, "sessions.open", session.id, details={"scope": session.scope})
    return session


# --- tickets


@operation(single=True)
def create_ticket(secret: str, asker: Asker, ttl: float) -> Steps[None]:
    """Store a ticket that gives the rights of the sender who asked for it, once within `ttl` seconds."""
    more = {"made_from": asker.token_id, "job_id": asker.job_id, "good_until": asker.good_until}
    yield from _create("ticket", secret, asker.owner_name, asker.scope, ttl, **more)


@operation(single=True)
def use_ticket(secret: str) -> Steps[Row | None]:
    """Use a ticket up; returns its row, or None if it is unknown, expired or already used."""
    rows = yield Call("use_token", hash=hash_of(secret), kind="ticket")
    return rows[0] if rows else None
