"""Which web pages may send requests; the cookie of a session: its name, when it counts, and what a page must send
beside it.

A browser adds a cookie by itself, even to requests of a foreign page. So the cookie counts only in requests of this
server's own pages: SameSite=Strict withholds it from other sites, Sec-Fetch-Site shows other origins of this site (such
as another port of localhost), and a WebSocket needs this server's own Origin. A request that changes something
needs that Origin and, in the header X-Rowlock-CSRF, a value that only a page which can read our answers knows. Either
of the two would be enough; with both, a mistake in one of them does no harm.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from rowlock.api.access.sender import Asker
from rowlock.api.problems import Refusal
from rowlock.core.config import ApiSettings

SECURE = ("https", "wss")
CSRF_HEADER = "X-Rowlock-CSRF"
READING = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
LONGEST = 200  # characters of a session's secret
# Browsers accept a cookie with this prefix only over TLS, with the path /, and for the host that sets it. So a server
# on another name of the domain (other.example.com) cannot set it for this one.
HOST_ONLY = "__Host-"


def may_come_from(connection: HTTPConnection, named: Collection[str]) -> bool:
    """Whether the page that sent this request is from this server or from an allowed origin. Programs that
    aren't browsers send no Origin and are allowed. A page loaded without TLS does not count as a page of a server with
    TLS, because anybody on the network could have changed it."""
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
    """Whether a page of this server sent the request, by its Origin header."""
    return "origin" in connection.headers and may_come_from(connection, ())


def cookie_name(connection: HTTPConnection) -> str:
    """The name of the cookie, which depends on port and path. Browsers share cookies between all ports of a host:
    without that, servers on 127.0.0.1 would log each other's users out."""
    _, _, port = connection.headers.get("host", "").rpartition(":")
    place = f"{port if port.isdecimal() else ''}{cookie_path(connection)}"
    return f"rowlock_session_{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def cookie_path(connection: HTTPConnection) -> str:
    """The path of the cookie: the API's prefix or, if it is mounted in another application, that application's, so that
    its own routes get the cookie."""
    scope = connection.scope
    return str(scope.get("app_root_path", scope.get("root_path", ""))) or "/"


def session_in(connection: HTTPConnection) -> str | None:
    """The secret of the session in this request's cookie. None if two cookies have its name: somebody else on this host
    has set one of them."""
    pairs = [pair.strip().partition("=") for line in connection.headers.getlist("cookie") for pair in line.split(";")]
    for wanted in _names(connection):
        if found := [value for name, _, value in pairs if name == wanted]:
            return found[0] if len(found) == 1 and 0 < len(found[0]) <= LONGEST and found[0].isascii() else None
    return None


def _names(connection: HTTPConnection) -> list[str]:
    """The names under which a session may come, the safer one first. The other one does not count where it is known
    that the browser speaks TLS; behind a proxy that nobody has named, that is not known."""
    name = cookie_name(connection)
    if cookie_path(connection) != "/":
        return [name]
    return [HOST_ONLY + name] if connection.scope["scheme"] in SECURE else [HOST_ONLY + name, name]


def may_count(connection: HTTPConnection) -> bool:
    """Whether a cookie counts in this request: a page of this server sent it, or a user typed the address."""
    if connection.scope["type"] == "websocket":
        return is_own_page(connection)
    return connection.headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def csrf_of(secret: str) -> str:
    """The CSRF value of a session: derived from its secret, so that it need not be stored."""
    digest = hashlib.sha256(b"csrf:" + secret.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def reads_only(connection: HTTPConnection) -> bool:
    """Whether a request changes nothing. A WebSocket may change something."""
    return connection.scope["type"] == "http" and connection.scope["method"] in READING


def check_origin(connection: HTTPConnection, settings: ApiSettings) -> None:
    """Refuse a request that changes something and comes from a page of a foreign origin."""
    if not reads_only(connection) and not may_come_from(connection, settings.cors_origins):
        raise Refusal("INVALID_ORIGIN", "name the page's origin in api.cors_origins to let it send requests")


def check_session(connection: HTTPConnection, asker: Asker) -> None:
    """Refuse a request that changes something with a session, if a foreign page may have sent it."""
    if asker.csrf is None or reads_only(connection) or connection.scope["type"] == "websocket":
        return  # of a socket, the cookie counts only with this server's own Origin
    if not is_own_page(connection):
        raise Refusal("INVALID_ORIGIN", "a session's cookie counts only in requests of this server's own pages")
    given = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), asker.csrf.encode()):
        raise Refusal("INVALID_CSRF", f"send the `csrf` that GET /api/session answers as {CSRF_HEADER}")


def set_cookie(connection: HTTPConnection, response: Response, secret: str, seconds: float) -> None:
    name, path, secure = _place(connection)
    response.set_cookie(name, secret, max_age=int(seconds), path=path, secure=secure, httponly=True, samesite="strict")


def clear_cookie(connection: HTTPConnection, response: Response) -> None:
    name, path, secure = _place(connection)
    response.delete_cookie(name, path, secure=secure, httponly=True, samesite="strict")


def _place(connection: HTTPConnection) -> tuple[str, str, bool]:
    """Name and path of the cookie, and whether it is for TLS only. Behind a TLS proxy that is not in
    `api.trusted_proxies`, only the Origin header shows that the browser uses TLS."""
    path, name = cookie_path(connection), cookie_name(connection)
    secure = connection.scope["scheme"] in SECURE or connection.headers.get("origin", "").startswith("https:")
    return HOST_ONLY + name if secure and path == "/" else name, path, secure
