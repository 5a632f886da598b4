"""JSON Web Tokens of an identity provider: HS256 with a shared secret, RS256 with published keys.

The algorithm is the one in the settings, never the one that a token names: a token signed with `none`, or with a public
key taken for a shared secret, is refused.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import jwt

from rowlock.api.access.own_jobs import EVERYONE
from rowlock.api.access.published_keys import PublishedKeys
from rowlock.api.access.sender import Asker
from rowlock.core.config import JwtSettings
from rowlock.core.errors import ConfigError
from rowlock.core.option_checks import name

log = logging.getLogger("rowlock.api")

LOCAL = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])[:/]")  # keys of a provider on this machine
LEEWAY_SECONDS = 5  # allowed difference between the clocks of the identity provider and this machine


class JwtVerifier:
    """Checks JSON Web Tokens against the settings, and returns their users."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._published: PublishedKeys | None = None
        self._keys: jwt.PyJWKSet | None = None
        if settings.jwks is not None:
            self._read_keys(settings.jwks)

    def _read_keys(self, where: str) -> None:
        try:
            if where.startswith("https://") or LOCAL.match(where):
                self._published = PublishedKeys(where)
            else:
                self._keys = jwt.PyJWKSet.from_json(Path(where).read_text("utf-8"))
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise ConfigError(f"api.jwt.jwks = {where!r}: cannot be read as a key set: {error}") from None

    async def has_key_for(self, token: str) -> bool:
        """Whether there is the key that a token names. If the keys are published, they may be fetched first."""
        if self._published is None:
            return True
        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except Exception:  # as in `asker_of`
            return False
        return isinstance(kid, str) and await self._published.has(kid)

    def asker_of(self, token: str) -> Asker | None:
        """The user of this token; None if it is not valid, or its key is not known yet: see `has_key_for`."""
        settings = self._settings
        required = ["exp", settings.owner_claim]
        try:
            claims = jwt.decode(
                token,
                self._key_of(token),
                algorithms=[settings.algorithm],
                issuer=settings.issuer,
                audience=settings.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": required, "verify_aud": settings.audience is not None},
            )
            until = float(claims["exp"]) + LEEWAY_SECONDS
            subject = name(claims[settings.owner_claim], settings.owner_claim)
            if settings.operator_claim is not None and claims.get(settings.operator_claim) is True:
                return Asker(EVERYONE, "operator", good_until=until, subject=subject)
            return Asker(subject, good_until=until)
        except Exception as error:  # tokens are untrusted text: deeply nested, with a wrong kind of key, …
            log.info("a JSON Web Token was refused: %s", type(error).__name__)
            return None

    def _key_of(self, token: str) -> Any:
        if self._settings.secret is not None:
            return self._settings.secret
        wanted: Any = jwt.get_unverified_header(token).get("kid")
        if self._published is not None:
            return self._published[wanted].key
        assert self._keys is not None  # the settings have a secret or a key set
        return (self._keys.keys[0] if wanted is None else self._keys[wanted]).key
