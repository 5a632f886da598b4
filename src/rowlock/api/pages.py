"""Files for browsers: a page, its scripts and styles, read once from a folder.

Anybody may read them, because they tell nothing: what a page shows it asks of the API, as the user who is logged in.
The headers let a page load from this server alone and run no code but its files, whatever text it is made to show.
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rowlock.core.errors import ConfigError

INDEX = "index.html"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again each time, and answered with 304: a new version is seen at once
}


class File(NamedTuple):
    """One file, as it is sent."""

    content: bytes
    kind: str
    etag: str


class Pages:
    """The files of a folder by their paths below the root of the API; `/` is index.html."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            f"/{path.relative_to(folder).as_posix()}": _read(path) for path in folder.rglob("*") if path.is_file()
        }
        if f"/{INDEX}" not in self._files:
            raise ConfigError(f"serve_pages({str(folder)!r}): there is no {INDEX} in this folder")
        self._files["/"] = self._files[f"/{INDEX}"]

    def __contains__(self, path: str) -> bool:
        return path in self._files or path == ""

    async def __call__(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for one of the files."""
        if path == "":  # the prefix without its slash, from which a page could not find its scripts
            await Response(None, 307, {"Location": f"{scope['root_path']}/"})(scope, receive, send)
            return
        content, kind, etag = self._files[path]
        headers = {**HEADERS, "ETag": etag}
        if etag in HTTPConnection(scope).headers.get("if-none-match", ""):
            await Response(None, 304, headers)(scope, receive, send)
        else:
            body = b"" if scope["method"] == "HEAD" else content
            await Response(body, 200, {**headers, "Content-Length": str(len(content))}, kind)(scope, receive, send)


def _read(path: Path) -> File:
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
