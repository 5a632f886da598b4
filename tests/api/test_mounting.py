"""The API inside of somebody's application, under a prefix, with that application's own authentication; and alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from api.conftest import Api, Serve, add_tasks
from rowlock import ConfigError, Rowlock
from rowlock.api.access import tokens
from rowlock.api.server import Server, serving
from rowlock.core.config import load_settings
from support.each import each


@pytest.fixture
def engine() -> str:
    """Who asks is found out before the store is asked: one engine is enough."""
    return "sqlite"


async def test_an_application_mounts_the_api_and_says_who_asks(app_url: str) -> None:
    app = Rowlock(app_url)
    add_tasks(app)

    async def whose(request: HTTPConnection) -> str | None:
        return request.headers.get("X-Session")  # what a real one would look up

    host = FastAPI()
    host.mount("/site", app.asgi(whose))
    server = Server(uvicorn.Config(host, port=0, log_config=None))
    running = asyncio.ensure_future(server.serve())
    async with app, aiohttp.ClientSession() as http:
        while not server.started:
            await asyncio.sleep(0.01)
        api = Api(app, "http://{}:{}/site".format(*server.address), http)
        assert (await api.ask("GET", "/api/jobs"))[0] == 401
        assert (await api.ask("GET", "/api/jobs", await api.token()))[0] == 401  # tokens are not asked here
        body = {"jobType": "add", "args": {"a": 1}}
        status, created, headers = await api.ask("POST", "/api/jobs", None, body, X_Session="ana")
        assert status == 202
        assert headers["location"] == f"/site/api/jobs/{created['jobId']}"
        assert (await api.ask("GET", f"/api/jobs/{created['jobId']}", X_Session="ana"))[0] == 200
        assert (await api.ask("GET", f"/api/jobs/{created['jobId']}", X_Session="bob"))[0] == 404
        async with http.ws_connect(api.url.replace("http", "ws") + "/api/ws", headers={"X-Session": "ana"}) as socket:
            assert (await socket.receive_json())["type"] == "ready"
        server.should_exit = True
        await running


@asynccontextmanager
async def mounted(app: Rowlock, authenticate: Any, host: Any = None) -> AsyncIterator[Api]:
    """The API inside of another application, on a server of its own."""
    host = host or FastAPI()
    host.mount("/site", app.asgi(authenticate))
    server = Server(uvicorn.Config(host, port=0, log_config=None))
    running = asyncio.ensure_future(server.serve())
    async with app, aiohttp.ClientSession() as http:
        while not server.started:
            await asyncio.sleep(0.01)
        yield Api(app, "http://{}:{}/site".format(*server.address), http)
        server.should_exit = True
        await running


def refuses(_: HTTPConnection) -> str:
    raise HTTPException(403, "log in first")


async def refuses_later(_: HTTPConnection) -> str:
    raise HTTPException(401)


def breaks(_: HTTPConnection) -> str:
    raise LookupError("the session store is away: password=hunter2")


async def breaks_later(_: HTTPConnection) -> str:
    return breaks(_)


@each(
    "authenticate, status, code",
    [
        (lambda _: "ana", 200, None),
        (lambda _: None, 401, "UNAUTHORIZED"),
        (refuses, 401, "UNAUTHORIZED"),
        (refuses_later, 401, "UNAUTHORIZED"),
        (breaks, 500, "INTERNAL"),
        (breaks_later, 500, "INTERNAL"),
        (lambda _: 7, 500, "INTERNAL"),  # an owner is text
        (lambda _: "", 401, "UNAUTHORIZED"),
        (lambda _: "a\x00b", 401, "UNAUTHORIZED"),
        (lambda _: "x" * 201, 401, "UNAUTHORIZED"),
    ],
    ids=["owner", "none", "refuses", "refuses later", "breaks", "breaks later", "number", "empty", "NUL", "too long"],
)
@each("host", [FastAPI, Starlette])
async def test_what_the_applications_own_function_answers_or_raises(
    app_url: str, authenticate: Any, status: int, code: str | None, host: Any
) -> None:
    app = Rowlock(app_url)
    add_tasks(app)
    async with mounted(app, authenticate, host()) as api:
        answer, body, _ = await api.ask("GET", "/api/jobs")
        assert answer == status
        assert "hunter2" not in str(body)
        if code is not None:
            assert body["code"] == code


async def test_where_the_application_says_who_asks_a_token_opens_no_socket(app_url: str) -> None:
    app = Rowlock(app_url)
    async with mounted(app, lambda _: None) as api, api.socket(await api.token()) as socket:
        assert (await socket.next())["code"] == "UNAUTHORIZED"


async def test_a_page_of_another_origin_cannot_use_the_applications_own_login(app_url: str) -> None:
    app = Rowlock(app_url)
    add_tasks(app)
    async with mounted(app, lambda _: "ana") as api:  # as with a cookie, which browsers send by themselves
        job_id = (await app.get_task("add").using(owner="ana").enqueue(a=1)).id
        status, problem, _ = await api.ask("POST", f"/api/jobs/{job_id}/cancel", Origin="https://evil.example")
        assert (status, problem["code"]) == (403, "INVALID_ORIGIN")
        assert (await app.job(job_id)).state == "queued"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await api.http.ws_connect(api.url + "/api/ws", headers={"Origin": "https://evil.example"})


async def test_a_server_behind_a_prefix_names_it_in_addresses(serve: Serve) -> None:
    async with serve(base_path="/rowlock") as api:
        ana = await api.token()
        status, body, headers = await api.ask("POST", "/rowlock/api/jobs", ana, {"jobType": "add", "args": {"a": 1}})
        assert (status, headers["location"]) == (202, f"/rowlock/api/jobs/{body['jobId']}")
        assert (await api.ask("GET", headers["location"], ana))[0] == 200


@each("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_without_a_token_the_server_listens_on_no_address_that_others_reach(app_url: str, host: str) -> None:
    app = Rowlock(settings=load_settings(env={}, flags={"database": app_url, "api.host": host, "api.port": 0}))
    async with app:
        with pytest.raises(ConfigError, match="rowlock tokens create"):
            async with serving(app):
                pass


async def test_a_port_that_is_taken_is_an_error_that_says_so(api: Api, app_url: str, tmp_path: Path) -> None:
    port = int(api.url.rpartition(":")[2])
    async with Rowlock(settings=load_settings(env={}, flags={"database": app_url, "api.port": port})) as second:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with serving(second):
                pass


async def test_anonymous_requests_get_401_also_while_there_is_no_token_at_all(api: Api) -> None:
    assert not await (await api.app.store()).run(tokens.any_good())
    assert (await api.ask("GET", "/api/jobs"))[0] == 401


async def test_routes_of_the_app_itself_stand_behind_the_checks_of_the_api(serve: Serve) -> None:
    router = APIRouter()

    @router.post("/api/notes", status_code=201)
    async def note(text: dict[str, str]) -> dict[str, str]:
        return text

    @router.get("/api/jobs")
    async def instead_of_ours() -> str:
        return "the app's own"

    async with serve(lambda app: app.include_router(router), body_bytes=2000) as api:
        token = await api.token()
        assert (await api.ask("POST", "/api/notes", token, {"a": "b"}))[:2] == (201, {"a": "b"})
        assert (await api.ask("POST", "/api/notes", None, {"a": "b"}))[1]["code"] == "UNAUTHORIZED"
        assert (await api.ask("POST", "/api/notes", token, {"a": "b" * 2000}))[1]["code"] == "BODY_TOO_LARGE"
        refused = await api.ask("POST", "/api/notes", token, {"a": "b"}, Origin="https://elsewhere.example")
        assert refused[1]["code"] == "INVALID_ORIGIN"
        assert (await api.ask("POST", "/api/notes", token, []))[1]["code"] == "INVALID_REQUEST"
        assert (await api.ask("GET", "/api/jobs", token))[1] == "the app's own"
        schema = (await api.ask("GET", "/api/openapi.json"))[1]
        assert "/api/notes" in schema["paths"]
