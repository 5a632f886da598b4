"""Files for browsers: one page at the root of the API, what it loads below /static/, and the files of the folder
.well-known (RFC 8615). Without a page of the app's own it is the operators' dashboard, built from ui/src/dashboard into
the folder `static` beside this module.

Anybody may read them, because they reveal nothing: a page asks the API for its data, as the user who is logged in.
The headers let a page load from this server alone and run no code but its files, whatever text it is made to show. The
addresses in a page are relative, so that it works under any prefix.
"""

from __future__ import annotations

import logging
import mimetypes
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rowlock.api.context import tagged
from rowlock.api.problems import Refusal
from rowlock.core.errors import ConfigError

PAGE = "/"
FOLDER = "/static/"
WELL_KNOWN = "/.well-known/"
INDEX = "index.html"

log = logging.getLogger("rowlock.api")

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


class Pages:
    """The files of a folder, or of the dashboard, by the paths under which they are sent. They are read once: they are
    few and small, and a path of a request never reaches the file system."""

    def __init__(self, folder: Path | None = None) -> None:
        whole = files("rowlock.api") / "static" if folder is None else folder
        parts = {FOLDER: whole, WELL_KNOWN: whole / WELL_KNOWN.strip("/")}
        self._files = {at + file.name: file.read_bytes() for at in parts for file in _files_of(parts[at], whole)}
        if folder is not None and FOLDER + INDEX not in self._files:
            raise ConfigError(f"serve_pages({str(folder)!r}): there is no {INDEX} in this folder")

    def __contains__(self, path: str) -> bool:
        return path == PAGE or path.startswith((FOLDER, WELL_KNOWN))

    def routes(self) -> list[Route]:
        paths = (PAGE, FOLDER + "{name}", WELL_KNOWN + "{name}")
        return [Route(path, partial(self._send, path), include_in_schema=False) for path in paths]

    async def _send(self, route: str, request: Request) -> Response:
        path = FOLDER + INDEX if route == PAGE else route.format(**request.path_params)
        if (content := self._files.get(path)) is None:
            return HTMLResponse(MISSING, 503, HEADERS) if route == PAGE else Refusal("NOT_FOUND").response()
        kind = mimetypes.guess_type(path)[0] or "text/plain"
        return tagged(content, request.headers.get("if-none-match"), HEADERS, kind)


def _files_of(part: Traversable | Path, whole: Traversable | Path) -> Iterator[Traversable | Path]:
    """The files of a folder that anybody may read. A file such as .env or .htpasswd is seldom meant for them, nor is
    a link to a file elsewhere."""
    if not part.is_dir():
        return
    for file in part.iterdir():
        if file.name.startswith(".") or not file.is_file():
            continue
        if isinstance(file, Path) and isinstance(whole, Path) and not file.resolve().is_relative_to(whole.resolve()):
            log.warning("%s is not served: it is a link that leads out of %s", file, whole)
            continue
        yield file
