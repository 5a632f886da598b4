"""JSON Web Tokens of somebody's identity provider: HS256 with a shared secret, RS256 with published keys.

The algorithm is the one in the settings, never the one that a token names: a token signed with `none`, or with a public
key taken for a shared secret, is refused.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import jwt

from rowlock.api.asker import Asker
from rowlock.core.config import JwtSettings
from rowlock.core.errors import ConfigError
from rowlock.store.owned import EVERYONE

log = logging.getLogger("rowlock.api")

LEEWAY_SECONDS = 5  # between the clocks of the identity provider and of this machine


class JwtVerifier:
    """Checks tokens against the settings, and says who has them."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._published: jwt.PyJWKClient | None = None
        self._keys: jwt.PyJWKSet | None = None
        if settings.jwks is not None:
            self._read_keys(settings.jwks)

    def _read_keys(self, where: str) -> None:
        try:
            if where.startswith("https://"):
                self._published = jwt.PyJWKClient(where, cache_keys=True, lifespan=300, timeout=5)
            else:
                self._keys = jwt.PyJWKSet.from_dict(json.loads(Path(where).read_text("utf-8")))
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise ConfigError(f"api.jwt.jwks = {where!r}: cannot be read as a key set: {error}") from None

    def asker_of(self, token: str) -> Asker | None:
        """Who has this token; None when it is not valid."""
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
        except (jwt.PyJWTError, ValueError) as error:
            log.info("a JSON Web Token was refused: %s", type(error).__name__)
            return None
        if settings.operator_claim is not None and claims.get(settings.operator_claim) is True:
            return Asker(EVERYONE, "operator")
        owner = claims[settings.owner_claim]
        return Asker(owner) if isinstance(owner, str) and owner else None

    def _key_of(self, token: str) -> Any:
        if self._settings.secret is not None:
            return self._settings.secret
        if self._published is not None:
            return self._published.get_signing_key_from_jwt(token).key
        wanted = jwt.get_unverified_header(token).get("kid")
        for key in self._keys.keys if self._keys else ():
            if key.key_id == wanted or wanted is None:
                return key.key
        raise jwt.InvalidKeyError("no published key has this token's key id")
