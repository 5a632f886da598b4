"""While the database is away: requests are told to come back, nothing hangs, and clients that watch go on later."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from api.conftest import Api, add_tasks
from api.test_strangers import routes
from rowlock import Rowlock
from rowlock.api.access import auth
from rowlock.api.access.gate import OPEN
from rowlock.api.live import sockets
from rowlock.api.server import serving
from rowlock.core.config import load_settings
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.servers.postgres import PostgresServer

BODIES = {  # of the routes that look at the body before they ask who it is
    ("POST", "/api/jobs"): {"jobType": "add", "args": {"a": 1}},
    ("POST", "/api/session"): {"token": "rlk_nonsense"},
}


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def api(database: PostgresServer, tmp_path: Path) -> AsyncIterator[Api]:
    url = database.create_database(f"outage_{tmp_path.name[-20:]}")
    await (await open_store(url, StoreOptions(migrate=True))).close()
    flags = {"database": url, "api.port": 0, "results.path": str(tmp_path / "results")}
    app = Rowlock(settings=load_settings(env={}, flags=flags))
    add_tasks(app)
    async with app, serving(app) as server, aiohttp.ClientSession() as http:
        yield Api(app, "http://{}:{}".format(*server.address), http)


async def test_every_route_says_come_back_and_a_watching_client_misses_nothing(
    api: Api, database: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED_SECONDS", 0.0)
    operator, ana = await api.token(None, "operator"), await api.token()
    job_id = await api.create(ana, a=1)
    async with api.socket(ana) as socket:
        assert (await socket.next())["type"] == "ready"
        database.stop("immediate")
        try:
            asked = [one for one in routes() if one[1] not in OPEN]
            async with asyncio.timeout(60):
                answers = await asyncio.gather(
                    *(
                        api.ask(method, path.replace("{jobId}", job_id), operator, BODIES.get((method, path)))
                        for method, path in asked
                    )
                )
            for route, (status, problem, headers) in zip(asked, answers, strict=True):
                assert (status, problem["code"]) == (503, "UNAVAILABLE"), route
                assert int(headers["retry-after"]) > 0
            assert (await api.ask("GET", "/livez"))[0] == 200
            status, text, _ = await api.ask("GET", "/readyz")
            assert (status, text) == (503, b"not ready: StoreUnavailable")
            async with api.socket(ana) as late:  # it cannot be found out who this is
                assert await late.closed() == sockets.TRY_LATER
        finally:
            database.start()
        async with asyncio.timeout(60):
            while (await api.ask("GET", "/readyz"))[0] != 200:
                await asyncio.sleep(0.1)
        await api.app.cancel(job_id)
        message = await socket.next(30)
    assert (message["type"], message["jobId"]) == ("job.cancelled", job_id)


async def test_a_token_in_the_cache_gets_503_while_the_database_is_down(api: Api, database: PostgresServer) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    database.stop("immediate")
    try:
        status, problem, _ = await api.ask("GET", f"/api/jobs/{job_id}", ana)
        assert (status, problem["code"]) == (503, "UNAVAILABLE")
    finally:
        database.start()
