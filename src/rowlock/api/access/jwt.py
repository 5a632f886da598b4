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
    def __init__(self, settings: JwtSettings) -> None:
        self._settings, where = settings, settings.jwks
        self._keys: PublishedKeys | jwt.PyJWKSet | None = None
        try:
            if where is not None and (where.startswith("https://") or LOCAL.match(where)):
                self._keys = PublishedKeys(where)
            elif where is not None:
                self._keys = jwt.PyJWKSet.from_json(Path(where).read_text("utf-8"))
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise ConfigError(f"api.jwt.jwks = {where!r}: cannot be read as a key set: {error}") from None

    async def asker_of(self, token: str) -> Asker | None:
        """The user of this token; None if it is not valid. If the keys are published, they may be fetched first."""
        settings = self._settings
        required = ["exp", settings.owner_claim]
        try:
            claims = jwt.decode(
                token,
                await self._key_of(token),
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

    async def _key_of(self, token: str) -> Any:
        if self._settings.secret is not None:
            return self._settings.secret
        wanted: Any = jwt.get_unverified_header(token).get("kid")
        if isinstance(self._keys, PublishedKeys):
            if not isinstance(wanted, str) or not await self._keys.has(wanted):
                raise KeyError(wanted)
            return self._keys[wanted].key
        assert self._keys is not None  # the settings have a secret or a key set
        return (self._keys.keys[0] if wanted is None else self._keys[wanted]).key
