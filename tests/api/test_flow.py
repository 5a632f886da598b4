"""Create, watch, download: server and worker are processes of their own, and the server is killed on the way."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.command import Cli
from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.live import events
from support.servers.postgres import free_port

APP = """
import asyncio
from rowlock import Context, Rowlock

app = Rowlock()


@app.task("film", public=True)
async def film(ctx: Context, frames: int) -> str:
    with ctx.result_file("film.txt").open("w") as file:
        for number in range(frames):
            await ctx.progress(100 * number // frames, phase="drawing", message=f"frame {number}")
            file.write(f"frame {number}\\n")
            await asyncio.sleep(0.3)
    return "drawn"
"""
FRAMES = 12


@pytest.fixture
def cli(tmp_path: Path, app_url: str) -> Iterator[Cli]:
    (tmp_path / "films.py").write_text(APP)
    cli = Cli(tmp_path, app_url)
    cli.env["ROWLOCK_APP"] = "films"
    yield cli
    cli.close()


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    """Wait until a server answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with http.get(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def new_token(url: str) -> str:
    """A token of ana's, without a process that makes it."""
    secret = tokens.new_secret()
    async with Rowlock(url) as app:
        await (await app.store()).run(tokens.create(secret, "ana", "jobs"))
    return secret


async def told(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[dict[str, Any]]:
    """The events that a socket brings."""
    async for message in socket:
        event = json.loads(message.data)
        if event["type"] != "ready":
            yield event


async def test_a_job_is_created_watched_and_downloaded_although_the_server_dies_on_the_way(
    cli: Cli, app_url: str
) -> None:
    token, port = await new_token(app_url), free_port()
    url, serve = f"http://127.0.0.1:{port}", ("serve", "--port", str(port))
    seen: list[dict[str, Any]] = []
    cli.start("worker")
    server = cli.start(*serve)
    async with asyncio.timeout(110), aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        await ready(http, url)
        async with http.ws_connect(f"{url}/api/ws") as first:
            assert (await first.receive_json())["type"] == "ready"
            async with http.post(f"{url}/api/jobs", json={"jobType": "film", "args": {"frames": FRAMES}}) as answer:
                job_id = (await answer.json())["jobId"]
            async for event in told(first):
                seen.append(event)
                if event["progress"] >= 20:
                    break
            server.process.kill()
            server.process.wait()
        server = cli.start(*serve)
        await ready(http, url)
        async with http.ws_connect(f"{url}/api/ws?lastEventId={seen[-1]['eventId']}") as second:
            async for event in told(second):
                seen.append(event)
                if event["done"]:
                    break
        async with http.get(f"{url}/api/jobs/{job_id}") as answer:
            job = await answer.json()
        async with http.get(f"{url}/api/jobs/{job_id}/result") as answer:
            content = await answer.read()
    assert server.stop() == 0
    async with Rowlock(app_url) as app:
        happened = await (await app.store()).run(events.after(0, 1000, "ana"))
    assert [(event["type"], event["message"]) for event in seen] == [(one.type, one.message) for one in happened]
    assert {event["jobId"] for event in seen} == {job_id}
    assert seen[-1]["type"] == "job.completed"
    progress = [event["progress"] for event in seen]
    assert progress == sorted(progress)
    assert content.decode().splitlines() == [f"frame {number}" for number in range(FRAMES)]
    assert job["checksum"] == seen[-1]["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_up_serves_the_api_beside_worker_and_dispatcher(cli: Cli, app_url: str) -> None:
    token, port = await new_token(app_url), free_port()
    up = cli.start("up", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(60), aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        await ready(http, url)
        body = {"jobType": "film", "args": {"frames": 1}}
        async with http.post(f"{url}/api/jobs", json=body, headers={"Prefer": "wait=30"}) as answer:
            assert (await answer.json())["status"] == "SUCCEEDED"
    assert up.stop() == 0
