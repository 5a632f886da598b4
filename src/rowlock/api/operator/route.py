"""What all operator routes share: who may use them, the sharing of what they read, names in their paths."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import StringConstraints
from starlette.routing import Match
from starlette.types import Scope

from rowlock.api.context import api_router, asker_of, must_change, service_of, tagged
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import NO_NUL, Shape
from rowlock.core.errors import InvalidArguments, NotAllowed, RowlockError
from rowlock.core.job import Job

# LookupError: there is no such job, batch, schedule, task or worker.
REFUSALS = {LookupError: "NOT_FOUND", InvalidArguments: "INVALID_ARGUMENTS", NotAllowed: "NOT_ALLOWED"}
SLASH = "\udc2f"  # a slash inside of a name; no decoded path has a lone surrogate


class OperatorRoute(APIRoute):
    """One of these routes. What it reads has an ETag. A client that sends the ETag back is a page that follows changes:
    many of them ask at the same moment, so it may be answered with what another one has read within the last second.

    A queue, source, task, schedule or worker may have slashes in its name, which a client sends as %2F. Servers decode
    a path before routes get it, so that /sources/x%2Fpause (the source "x/pause") and /sources/x/pause (pause the
    source "x") look the same. So the path is read as it was sent, where that is known. Where a proxy has decoded it, a
    verb at the end of a path is the verb.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if "GET" in options["methods"]:
            options["responses"] = {**options["responses"], 304: {"description": "Not changed"}}
        super().__init__(path, endpoint, **options)
        # A name with a line break must reach its route, which explains what is wrong with it.
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return partial(self._serve, super().get_route_handler())

    async def _serve(self, handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        """Let an operator read, and change something if they may; what the library refuses becomes a problem."""
        panels, asker = (await service_of(request)).panels, await asker_of(request)
        if not asker.is_operator:
            raise Refusal("FORBIDDEN", "this needs an operator's token: rowlock tokens create --scope operator")
        reads, known = "GET" in (self.methods or ()), request.headers.get("if-none-match")
        if not reads:
            must_change(asker)
        try:
            if not reads:
                return await handler(request)
            key = (request.url.path, request.url.query, asker.may_change)
            response, shared = await panels.answer(key, lambda: handler(request), share=known is not None)
        except RowlockError as error:
            for kind, code in REFUSALS.items():
                if isinstance(error, kind):
                    raise Refusal(code, str(error)) from None
            raise
        finally:
            if not reads:
                panels.forget()
        if response.status_code != 200:
            return response
        return tagged(bytes(response.body), known, {"Age": "1"} if shared else {})

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or b"%2f" not in (scope.get("raw_path") or b"").lower():
            return super().matches(scope)
        match, found = super().matches({**scope, "path": _as_sent(scope), "root_path": ""})
        params = found.get("path_params", {})
        params |= {name: value.replace(SLASH, "/") for name, value in params.items() if isinstance(value, str)}
        return match, found


def _as_sent(scope: Scope) -> str:
    """The path below the root path, with SLASH for each %2F."""
    decoded = str(scope["path"]).removeprefix(scope.get("root_path", ""))
    parts = scope["raw_path"].decode("latin-1").split("/")
    sent = "/".join(unquote(part).replace("/", SLASH) for part in parts)
    # Something in between may have changed the path alone.
    return sent[-len(decoded) :] if sent.replace(SLASH, "/").endswith(decoded) else decoded


def operator_router() -> APIRouter:
    return api_router(
        route_class=OperatorRoute,
        prefix="/api/operator",
        tags=["operator"],
        responses=documented("FORBIDDEN", "INVALID_REQUEST", "TOO_SLOW"),
    )


Limit = Annotated[int, Query(ge=1, le=1000)]
Name = Annotated[str, Path(min_length=1, max_length=200, pattern=NO_NUL)]
AfterName = Annotated[str, Query(max_length=200, pattern=NO_NUL)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
Text = Annotated[str | None, Query(max_length=200, pattern=NO_NUL)]
NOT_FOUND = documented("NOT_FOUND")
REFUSED = documented("NOT_FOUND", "NOT_ALLOWED", "INVALID_ARGUMENTS")


class Rows(Shape):
    """Records of one kind."""

    items: list[dict[str, Any]]


def existing(job: Job | None) -> Job:
    """A job that was found; 404 if it wasn't."""
    if job is None:
        raise Refusal("NOT_FOUND", "there is no such job")
    return job
