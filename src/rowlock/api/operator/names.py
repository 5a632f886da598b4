"""Names in paths. A queue, source, task, schedule or worker may have slashes in its name, which a client sends as %2F.

Servers decode a path before routes get it, so that /sources/x%2Fpause (the source "x/pause") and /sources/x/pause
(pause the source "x") look the same. These routes read the path as it was sent, where that is known. Where a proxy has
decoded it, a verb at the end of a path is the verb.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from starlette.routing import Match
from starlette.types import Scope

from rowlock.api.operator.common import OperatorRoute

SLASH = "\udc2f"  # a slash inside of a name; no decoded path has a lone surrogate


class NameRoute(OperatorRoute):
    """A route with `{name:path}` in its path."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Also a name with a line break reaches its route, which says what is wrong with it.
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether this route serves the request, and the name in its path."""
        if scope["type"] != "http" or b"%2f" not in (scope.get("raw_path") or b"").lower():
            return super().matches(scope)
        match, found = super().matches({**scope, "path": _as_sent(scope), "root_path": ""})
        if "name" in found.get("path_params", {}):  # other routes of these routers have none
            found["path_params"]["name"] = found["path_params"]["name"].replace(SLASH, "/")
        return match, found


def _as_sent(scope: Scope) -> str:
    """The path below the root path, with SLASH for each %2F."""
    decoded = str(scope["path"]).removeprefix(scope.get("root_path", ""))
    parts = scope["raw_path"].decode("latin-1").split("/")
    sent = "/".join(unquote(part).replace("/", SLASH) for part in parts)
    # Something in between may have changed the path alone.
    return sent[-len(decoded) :] if sent.replace(SLASH, "/").endswith(decoded) else decoded
