"""Files for browsers: one page at the root of the API, and what it loads below /static/. Without a page of the app's
own it is the operators' dashboard, built from ui/src/dashboard into the folder `static` beside this module.

Anybody may read them, because they tell nothing: what a page shows it asks of the API, as the user who is logged in.
The headers let a page load from this server alone and run no code but its files, whatever text it is made to show. The
addresses in a page are relative, so that it works under any prefix.
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rowlock.api.problems import Refusal
from rowlock.core.errors import ConfigError

PAGE = "/"
FOLDER = "/static/"
INDEX = "index.html"

# The page runs its own files and nothing else: no inline code, nothing of another origin, no text that becomes code.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again each time, and answered with 304 while it has not changed
}

MISSING = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Rowlock: no dashboard</title></head>
<body>
<h1>The dashboard was not built</h1>
<p>This server runs from a checkout in which the files of the dashboard are missing. Build them, start the server
again and reload this page:</p>
<pre>make ui</pre>
<p>The API works without them, and so does the command line: <code>rowlock stats</code>,
<code>rowlock jobs list</code>.</p>
</body>
</html>
"""


class File(NamedTuple):
    """One file, as it is sent."""

    content: bytes
    kind: str
    tag: str


class Pages:
    """The files of one folder. They are read once: they are few and small, and a path of a request never reaches the
    file system. Without index.html, the page is the text `missing`."""

    def __init__(self, folder: Traversable | Path, missing: str | None = None) -> None:
        here = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
        self._files = {file.name: _read(file) for file in here}
        if INDEX not in self._files and missing is None:
            raise ConfigError(f"serve_pages({str(folder)!r}): there is no {INDEX} in this folder")
        self._missing = missing

    def __contains__(self, path: str) -> bool:
        return path == PAGE or path.startswith(FOLDER)

    def routes(self) -> list[Route]:
        """The page and its files."""
        return [Route(path, self._send, include_in_schema=False) for path in (PAGE, FOLDER + "{name}")]

    async def _send(self, request: Request) -> Response:
        name = request.path_params.get("name")
        file = self._files.get(name or INDEX)
        if file is None:
            return HTMLResponse(self._missing, 503, HEADERS) if name is None else Refusal("NOT_FOUND").response()
        headers = HEADERS | {"ETag": file.tag}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        return Response(file.content, media_type=file.kind, headers=headers)


def _read(file: Traversable | Path) -> File:
    content = file.read_bytes()
    kind = mimetypes.guess_type(file.name)[0] or "text/plain"
    return File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


@cache
def dashboard() -> Pages:
    """The files of the dashboard."""
    return Pages(files("rowlock.api") / "static", MISSING)
