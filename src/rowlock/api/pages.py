"""Files for browsers: one page at the root of the API, and what it loads below /static/.

Anybody may read them, because they tell nothing: what a page shows it asks of the API, as the user who is logged in.
The headers let a page load from this server alone and run no code but its files, whatever text it is made to show. The
addresses in a page are relative, so that it works under any prefix.
"""

from __future__ import annotations

import hashlib
import mimetypes
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
        self._files = {FOLDER + file.name: _read(file) for file in here}
        if (index := self._files.get(FOLDER + INDEX)) is not None:
            self._files[PAGE] = index
        elif missing is None:
            raise ConfigError(f"serve_pages({str(folder)!r}): there is no {INDEX} in this folder")
        self._missing = missing

    def __contains__(self, path: str) -> bool:
        return path == PAGE or path.startswith(FOLDER)

    def routes(self) -> list[Route]:
        """The page and its files."""
        return [
            Route(PAGE, self._page, include_in_schema=False),
            Route(FOLDER + "{name}", self._file, include_in_schema=False),
        ]

    async def _page(self, request: Request) -> Response:
        if PAGE not in self._files:
            return HTMLResponse(self._missing, 503, HEADERS)
        return self._send(request, PAGE)

    async def _file(self, request: Request) -> Response:
        path = FOLDER + request.path_params["name"]
        return self._send(request, path) if path in self._files else Refusal("NOT_FOUND").response()

    def _send(self, request: Request, path: str) -> Response:
        content, kind, tag = self._files[path]
        headers = HEADERS | {"ETag": tag}
        if tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        return Response(content, media_type=kind, headers=headers)


def _read(file: Traversable | Path) -> File:
    content = file.read_bytes()
    kind = mimetypes.guess_type(file.name)[0] or "text/plain"
    return File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
