"""Which web pages may send requests, by the Origin header that browsers send."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

SECURE = ("https", "wss")


def may_come_from(connection: HTTPConnection, named: Collection[str]) -> bool:
    """Whether the page that sent this request is from this server or from an allowed origin. Programs that are
    no browsers send no Origin and are allowed. A page loaded without TLS does not count as a page of a server with TLS,
    because anybody on the network could have changed it."""
    given = connection.headers.getlist("origin")
    if not given:
        return True
    if len(given) > 1:
        return False
    if given[0] in named:
        return True
    try:
        page = urlsplit(given[0])
    except ValueError:
        return False
    weaker = connection.scope["scheme"] in SECURE and page.scheme not in SECURE
    return page.netloc != "" and page.netloc == connection.headers.get("host") and not weaker


def is_own_page(connection: HTTPConnection) -> bool:
    """Whether a page of this server sent the request, and its browser says so."""
    return "origin" in connection.headers and may_come_from(connection, ())
