"""Which pages may send requests: browsers say from which origin a request comes."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

SECURE = ("https", "wss")


def may_come_from(connection: HTTPConnection, named: Collection[str]) -> bool:
    """Whether the page that sent this request may: a page of this server, or one of a named origin. Programs other than
    browsers send no Origin. A page that came unencrypted is not a page of a server that speaks TLS: anybody on the way
    could have written it."""
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
