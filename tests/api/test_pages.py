"""Pages beside the API, and routes of the host application that ask who sent a request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI, Request

from api.conftest import Api, add_tasks
from rowlock import ConfigError, Rowlock
from rowlock.api.server import Server
from support.each import each


@pytest.fixture
def engine() -> str:
    """Pages and the host's routes stand before the store: one engine is enough."""
    return "sqlite"


@asynccontextmanager
async def running(app: Rowlock, host: Any, path: str = "") -> AsyncIterator[Api]:
    """An application on a server of its own."""
    server = Server(uvicorn.Config(host, port=0, log_config=None))
    serving = asyncio.ensure_future(server.serve())
    async with app, aiohttp.ClientSession() as http:
        while not server.started:
            await asyncio.sleep(0.01)
        yield Api(app, "http://{}:{}".format(*server.address) + path, http)
        server.should_exit = True
        await serving


def routes(app: Rowlock) -> APIRouter:
    """Routes of a host application."""
    router = APIRouter()

    @router.api_route("/api/films", methods=["GET", "POST"])
    async def films(request: Request) -> dict[str, Any]:
        caller = await app.caller(request)
        return {"owner": caller.owner, "mayChange": caller.may_change, "operator": caller.is_operator}

    return router


@each("how", ["behind the gate", "beside the mounted API"])
async def test_routes_of_the_application_know_who_asks(app_url: str, how: str) -> None:
    app = Rowlock(app_url)
    add_tasks(app)
    api_app = app.asgi()
    host = api_app if how == "behind the gate" else FastAPI()
    host.include_router(routes(app))
    if host is not api_app:
        host.mount("/jobs", api_app)
    async with running(app, host) as api:
        where = Api(app, api.url + ("" if host is api_app else "/jobs"), api.http)
        page, ana = await where.log_in("ana"), await where.token("ana")
        page.api = api
        for answer in (await page.ask("POST", "/api/films"), await api.ask("GET", "/api/films", ana)):
            assert (answer[0], answer[1]["owner"], answer[1]["mayChange"]) == (200, "ana", True)
        reader = await where.token(None, "operator:read")
        assert (await api.ask("GET", "/api/films", reader))[1] == {"owner": None, "mayChange": False, "operator": True}
        assert (await api.ask("GET", "/api/films"))[0] == 401
        assert (await api.ask("POST", "/api/films", ana, Origin="http://evil.example"))[0] == 403
        assert (await page.ask("POST", "/api/films", **{"X-Rowlock-CSRF": ""}))[0] == 403
        assert (await page.ask("POST", "/api/films", Origin=""))[0] == 403
        _, job, _ = await where.ask("POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}, "watch": True})
        assert (await api.ask("GET", "/api/films", job["watchToken"]))[0] == 403  # a token that reads one job


async def test_an_application_that_says_who_asks_has_no_sessions(app_url: str) -> None:
    app = Rowlock(app_url)
    async with running(app, app.asgi(lambda _: "ana")) as api:
        link = await app.login_link("bob", base_url=api.url)
        status, problem, _ = await api.ask("POST", "/api/session", None, {"once": link.partition("#once=")[2]})
        assert (status, problem["code"]) == (403, "FORBIDDEN")


async def test_pages_are_served_to_anybody_and_run_only_their_own_files(app_url: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>films</title>")
    (tmp_path / "page.js").write_text("0")
    app = Rowlock(app_url)
    app.serve_pages(tmp_path)
    host = FastAPI()
    host.mount("/site", app.asgi())
    async with running(app, host, "/site") as api:
        for path in ("/", "/static/index.html"):
            status, body, headers = await api.ask("GET", path)
            assert (status, body) == (200, b"<!doctype html><title>films</title>")
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert (await api.ask("GET", "/", If_None_Match=headers["etag"]))[0] == 304
        assert (await api.ask("HEAD", "/"))[1] == b""
        assert (await api.ask("GET", "/static/page.js"))[2]["content-type"].startswith("text/javascript")
        for missing in ("/static/", "/static/none.js", "/static/..%2fsecret", "/static/page.js/"):
            assert (await api.ask("GET", missing))[1]["code"] == "NOT_FOUND"
        for closed in ("/api/jobs", "/page.js", "/static"):
            assert (await api.ask("GET", closed))[0] == 401
        assert (await api.ask("POST", "/"))[0] == 401
        async with api.http.get(api.url, allow_redirects=False) as moved:  # by the host application
            assert moved.headers["location"].endswith("/site/")


def test_a_folder_without_a_page_is_a_clear_error(tmp_path: Path) -> None:
    app = Rowlock("sqlite:///unused.db")
    app.serve_pages(tmp_path)
    with pytest.raises(ConfigError, match=r"index\.html"):
        app.asgi()


async def test_dot_files_and_links_that_lead_out_are_not_served(app_url: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / ".well-known").mkdir(parents=True)
    (site / "shared").mkdir()
    for name in ("index.html", ".env", ".well-known/security.txt", ".well-known/.htpasswd", "shared/a.css"):
        (site / name).write_text("content")
    (tmp_path / "secret.txt").write_text("not for everybody")
    (site / "out.txt").symlink_to(tmp_path / "secret.txt")
    (site / ".well-known/out.txt").symlink_to(tmp_path / "secret.txt")
    (site / "a.css").symlink_to("shared/a.css")
    (tmp_path / "link").symlink_to(site)
    app = Rowlock(app_url)
    app.serve_pages(tmp_path / "link")
    async with running(app, app.asgi()) as api:
        for path in ("/", "/static/index.html", "/static/a.css", "/.well-known/security.txt"):
            assert (await api.ask("GET", path))[:2] == (200, b"content"), path
        hidden = ("/static/.env", "/static/out.txt", "/.well-known/.htpasswd", "/.well-known/out.txt")
        for path in (*hidden, "/static/.well-known", "/static/..%2f.env"):
            assert (await api.ask("GET", path))[1]["code"] == "NOT_FOUND", path
        assert (await api.ask("GET", "/.env"))[0] == 401


@each("added", ["before", "later"])
async def test_a_route_of_the_application_is_behind_the_token_at_the_paths_of_pages(app_url: str, added: str) -> None:
    router = APIRouter()
    places = ("/static/reports/{name}", "/static/x/y") + (
        ("/", "/static/app.js", "/livez") if added == "before" else ()
    )
    for path in places:
        router.add_api_route(path, lambda: "of the application")
    router.add_api_route("/static/upload", lambda: "of the application", methods=["POST"])
    app = Rowlock(app_url)
    if added == "before":
        app.include_router(router)
    host = app.asgi()
    if added == "later":
        host.include_router(router)
    async with running(app, host) as api:
        ana = await api.token()
        for path in (place.format(name="7") for place in places):
            assert (await api.ask("GET", path))[0] == 401, path
            assert (await api.ask("GET", path, ana))[:2] == (200, "of the application"), path
        assert (await api.ask("POST", "/static/upload"))[0] == 401
        assert (await api.ask("GET", "/static/icon.svg"))[0] == 200
        if added == "later":
            assert b"<html" in (await api.ask("GET", "/"))[1]
