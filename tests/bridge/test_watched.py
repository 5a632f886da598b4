"""A job behind Redis, watched and downloaded through the job API by its owner."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.server import serving
from support.web.remote import Remote, with_tasks

VIDEO = b"\x00\x00\x00\x18ftypmp42 and the rest of it"


async def token_of(app: Rowlock, owner: str) -> dict[str, str]:
    """The header of a new token."""
    secret = tokens.new_secret()
    await (await app.store()).run(tokens.create(secret, owner, "jobs", None))
    return {"Authorization": f"Bearer {secret}"}


async def next_event(socket: aiohttp.ClientWebSocketResponse, of: str) -> dict[str, Any]:
    """The next message of this type."""
    async with asyncio.timeout(30):
        while True:
            message = await socket.receive()
            assert message.type is aiohttp.WSMsgType.TEXT, (message, socket.close_code)
            event: dict[str, Any] = json.loads(message.data)
            if event["type"] == of:
                return event


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_progress_and_result_in_the_streams_reach_the_owners_socket_and_download(
    settings: Callable[..., Any], remote: Remote
) -> None:
    async with (
        with_tasks(Rowlock(settings=settings(api__port=0))) as app,
        app.bridge(),
        serving(app) as server,
        aiohttp.ClientSession() as http,
    ):
        ana, ben = await token_of(app, "ana"), await token_of(app, "ben")
        url = "http://{}:{}".format(*server.address)
        async with http.ws_connect(f"{url}/api/ws", headers=ana) as socket:
            await next_event(socket, "ready")
            job = await app.get_task("REPLAY_MP4").using(owner="ana").enqueue(replayId=7, durationMs=1500)
            request = await remote.request(job.id)
            async with http.get(f"{url}/api/jobs/{job.id}", headers=ana) as answer:
                assert (await answer.json())["status"] == "QUEUED"

            remote.progress(job.id, 40, phase="encode", message="frame 4")
            told = await next_event(socket, "job.progress")
            assert (told["jobId"], told["progress"], told["phase"]) == (job.id, 40, "encode")
            async with http.get(f"{url}/api/jobs/{job.id}", headers=ana) as answer:
                assert (await answer.json())["status"] == "RUNNING"

            remote.succeed(request, VIDEO)
            done = await next_event(socket, "job.completed")
            assert (done["jobId"], done["done"]) == (job.id, True)
        async with http.get(f"{url}/api/jobs/{job.id}/result", headers=ana) as answer:
            assert (answer.status, await answer.read()) == (200, VIDEO)
        async with http.get(f"{url}/api/jobs/{job.id}/result", headers=ben) as answer:
            assert answer.status == 404
        assert done["checksum"] == f"sha256:{hashlib.sha256(VIDEO).hexdigest()}"
