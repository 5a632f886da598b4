"""The cookie of a session: its name, when it counts, and what a page must send beside it.

A browser sends a cookie by itself, also with requests that a page of somebody else has made. So it counts only in
requests of this server's own pages: SameSite=Strict keeps it away from other sites, Sec-Fetch-Site tells of other
origins on this site (another port of localhost), and a WebSocket needs this server's own Origin. A request that changes
something also needs that Origin and, in a header of its own, a value that only a page which can read our answers knows.
Either of the two would be enough; with both, a mistake in one of them opens nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from starlette.requests import HTTPConnection
from starlette.responses import Response

from rowlock.api.asker import Asker
from rowlock.api.origin import SECURE, is_own_page, may_come_from
from rowlock.api.problems import Refusal
from rowlock.core.config import ApiSettings

CSRF_HEADER = "X-Rowlock-CSRF"
READING = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
LONGEST = 200  # characters of a session's secret
# Browsers take a cookie whose name begins so over TLS alone, with the path / and from the very host: a server beside
# this one (other.example.com) cannot plant it in the browsers of its visitors.
HOST_ONLY = "__Host-"


def cookie_name(connection: HTTPConnection) -> str:
    """The name of the cookie. Browsers keep one jar for all ports of a host, so that it tells the port and the path:
    else the servers on 127.0.0.1 would log each other's users out."""
    _, _, port = connection.headers.get("host", "").rpartition(":")
    place = f"{port if port.isdecimal() else ''}{cookie_path(connection)}"
    return f"rowlock_session_{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def cookie_path(connection: HTTPConnection) -> str:
    """Where the cookie is sent to: below the API's prefix or, inside of another application, everywhere in that one, so
    that its own routes know who asks."""
    scope = connection.scope
    return str(scope.get("app_root_path", scope.get("root_path", ""))) or "/"


def session_in(connection: HTTPConnection) -> str | None:
    """The secret of the session in this request's cookie. None also when there are two of one name: one of them was set
    by somebody else on this host."""
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
    """Whether a cookie counts in this request: a page of this server, or somebody at the address bar, has sent it."""
    if connection.scope["type"] == "websocket":
        return is_own_page(connection)
    return connection.headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def csrf_of(secret: str) -> str:
    """What a page must repeat: made from the session's secret, so that it need not be stored."""
    digest = hashlib.sha256(b"csrf:" + secret.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def reads_only(connection: HTTPConnection) -> bool:
    """Whether a request changes nothing. A WebSocket may say anything."""
    return connection.scope["type"] == "http" and connection.scope["method"] in READING


def check_origin(connection: HTTPConnection, settings: ApiSettings) -> None:
    """Refuse a request that changes something and comes from a page of a stranger."""
    if not reads_only(connection) and not may_come_from(connection, settings.cors_origins):
        raise Refusal("INVALID_ORIGIN", "name the page's origin in api.cors_origins to let it send requests")


def check_session(connection: HTTPConnection, asker: Asker) -> None:
    """Refuse a request that changes something by a session, if a page of somebody else may have sent it."""
    if asker.csrf is None or reads_only(connection) or connection.scope["type"] == "websocket":
        return  # of a socket, the cookie counts only with this server's own Origin
    if not is_own_page(connection):
        raise Refusal("INVALID_ORIGIN", "a session's cookie counts only in requests of this server's own pages")
    given = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), asker.csrf.encode()):
        raise Refusal("INVALID_CSRF", f"send the `csrf` that GET /api/session answers as {CSRF_HEADER}")


def set_cookie(connection: HTTPConnection, response: Response, secret: str, seconds: float) -> None:
    """Let the browser keep a session."""
    name, path, secure = _place(connection)
    response.set_cookie(name, secret, max_age=int(seconds), path=path, secure=secure, httponly=True, samesite="strict")


def clear_cookie(connection: HTTPConnection, response: Response) -> None:
    """Let the browser forget a session."""
    name, path, secure = _place(connection)
    response.delete_cookie(name, path, secure=secure, httponly=True, samesite="strict")


def _place(connection: HTTPConnection) -> tuple[str, str, bool]:
    """Name and path of the cookie, and whether it is for TLS alone. Behind a proxy that speaks TLS, and that nobody has
    named, only the page's origin tells of it."""
    path, name = cookie_path(connection), cookie_name(connection)
    secure = connection.scope["scheme"] in SECURE or connection.headers.get("origin", "").startswith("https:")
    return HOST_ONLY + name if secure and path == "/" else name, path, secure
