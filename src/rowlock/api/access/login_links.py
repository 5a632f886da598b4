"""Login links: an address that logs one browser in, once."""

from __future__ import annotations

from typing import get_args
from urllib.parse import urlsplit

from rowlock.api.access.tokens import Scope, create_link, new_secret
from rowlock.core.config import ApiSettings
from rowlock.core.errors import InvalidArguments
from rowlock.core.option_checks import name
from rowlock.store.engine.operation import Operation

LINK_SECONDS = 600.0
EVERYWHERE = ("0.0.0.0", "::")  # not an address that a browser can open


def login_link(
    settings: ApiSettings, owner: str | None, scope: Scope | None, base_url: str | None
) -> tuple[str, Operation[None]]:
    """A link, and the operation that stores it. The secret is behind `#`: browsers send that part of an address to no
    server."""
    scope = scope or ("operator" if owner is None else "jobs")
    if scope not in get_args(Scope):
        raise InvalidArguments(f"scope must be one of {', '.join(get_args(Scope))}, not {scope!r}")
    if (scope == "jobs") != (owner is not None):
        needs = "needs an owner" if scope == "jobs" else "shows the jobs of all owners and takes no owner"
        raise InvalidArguments(f"a login link of scope {scope} {needs}")
    if owner is not None:
        name(owner, "owner")
    secret = new_secret()
    address = _address_of(settings) if base_url is None else _checked(base_url)
    return f"{address}/#once={secret}", create_link(secret, owner, scope, LINK_SECONDS)


def _address_of(settings: ApiSettings) -> str:
    """The address of the API by the settings."""
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
