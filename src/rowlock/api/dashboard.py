"""The operators' dashboard: a page, built from ui/src/dashboard into the folder `static` beside this module. The page
itself is for anybody, as a login form is; what it shows comes from routes that need an operator.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from rowlock.api.pages import Pages

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


@cache
def pages() -> Pages:
    """The files of the dashboard."""
    return Pages(files("rowlock.api") / "static", MISSING)
