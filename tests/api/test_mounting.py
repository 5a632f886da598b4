"""The API inside of somebody's application, under a prefix, with that application's own authentication; and alone."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.requests import HTTPConnection

from api.conftest import Api, Serve, add_tasks
from rowlock import ConfigError, Rowlock
from rowlock.api.server import Server, serving
from rowlock.core.config import load_settings
from rowlock.store import tokens


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


async def test_a_server_behind_a_prefix_names_it_in_addresses(serve: Serve) -> None:
    async with serve(base_path="/rowlock") as api:
        ana = await api.token()
        status, body, headers = await api.ask("POST", "/rowlock/api/jobs", ana, {"jobType": "add", "args": {"a": 1}})
        assert (status, headers["location"]) == (202, f"/rowlock/api/jobs/{body['jobId']}")
        assert (await api.ask("GET", headers["location"], ana))[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
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
