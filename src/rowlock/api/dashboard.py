"""The operators' dashboard: the files of one page, built from ui/src/dashboard into the folder `static` beside this
module. The page itself is for anybody, as a login form is; what it shows comes from routes that need an operator.

The addresses in the page are relative, so that it works under any prefix.
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rowlock.api.problems import Refusal

PAGE = "/"
FOLDER = "/static/"

# The page runs its own files and nothing else: no inline code, nothing of another origin, no text that becomes code.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
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


def routes() -> list[Route]:
    """The page and its files."""
    return [
        Route(PAGE, _page, include_in_schema=False),
        Route(FOLDER + "{name}", _file, include_in_schema=False),
    ]


def is_open(path: str) -> bool:
    """Whether anybody may have what is at this path: the page, which tells nothing of any job."""
    return path == PAGE or path.startswith(FOLDER)


async def _page(request: Request) -> Response:
    if "index.html" not in _static():
        return HTMLResponse(MISSING, 503, HEADERS)
    return _send(request, "index.html")


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    return _send(request, name) if name in _static() else Refusal("NOT_FOUND").response()


def _send(request: Request, name: str) -> Response:
    content, tag = _static()[name]
    headers = HEADERS | {"ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response(content, media_type=kind, headers=headers)


@cache
def _static() -> dict[str, tuple[bytes, str]]:
    """The built files by name, each with its tag. Read once: they are few and small, and a path of a request never
    reaches the file system."""
    folder = files("rowlock.api") / "static"
    if not folder.is_dir():
        return {}
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return {name: (content, f'"{hashlib.sha256(content).hexdigest()[:32]}"') for name, content in contents.items()}
