"""The sender of a request: who it is, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rowlock.api.access.own_jobs import EVERYONE, Owner
from rowlock.api.access.tokens import Scope, Token


@dataclass(frozen=True, slots=True)
class Asker:
    owner: Owner
    scope: Scope = "jobs"
    token_id: str | None = None  # the id of a Rowlock token; None with a JSON Web Token or a host application
    job_id: str | None = None  # with a watch token: the only job that they may read
    good_until: float | None = None  # when their JSON Web Token expires, in seconds since 1970
    subject: str | None = None  # of an operator with a JSON Web Token: who it is
    expires_at: datetime | None = None  # of a token of ours
    csrf: str | None = None  # of a session in a cookie: the value that requests which change something must repeat

    @classmethod
    def of(cls, token: Token, csrf: str | None = None) -> Asker:
        owner = EVERYONE if token.owner is None else token.owner
        return cls(owner, token.scope, token.id, token.job_id, expires_at=token.expires_at, csrf=csrf)

    @property
    def key(self) -> str:
        """The key under which rate limits count this sender."""
        return self.token_id or f"{self.scope}:{self.subject or self.owner}"

    @property
    def owner_name(self) -> str | None:
        """Whose jobs they may see; None for an operator, who sees the jobs of all owners."""
        return None if self.owner is EVERYONE else str(self.owner)

    @property
    def is_operator(self) -> bool:
        return self.owner is EVERYONE

    @property
    def may_change(self) -> bool:
        return self.scope != "operator:read" and self.job_id is None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and what they may do. `owner` is None for an operator, who sees the jobs of all owners."""

    owner: str | None
    scope: Scope
    may_change: bool

    @property
    def is_operator(self) -> bool:
        """Whether they may see the jobs of all owners."""
        return self.owner is None
