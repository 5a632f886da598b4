"""What one client may take of the server: requests, connections, time, depth. Each limit is a setting."""

import asyncio
import base64
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from api.conftest import Api, Serve
from rowlock import Context, Rowlock
from rowlock.api.live import sockets
from rowlock.core.config import load_settings
from support.each import each
from support.rigs.stores import ENGINES


@pytest.fixture
def engine() -> str:
    """One engine is enough for connections and time; a test of what the store counts names both."""
    return "sqlite"


async def test_one_address_with_many_tokens_waits_for_its_turn(serve: Serve) -> None:
    async with serve(address_requests_per_minute=60) as api:  # ten at once, then one a second
        tokens = [await api.token(f"owner {number}") for number in range(20)]
        answers = [await api.ask("GET", "/api/jobs", token) for token in tokens]
        refused = [answer for answer in answers if answer[0] == 429]
        assert refused
        assert refused[0][1]["code"] == "TOO_MANY_REQUESTS"
        assert int(refused[0][2]["retry-after"]) >= 1
        with pytest.raises(aiohttp.WSServerHandshakeError) as handshake:
            for _ in range(20):
                async with api.socket():
                    pass
        assert handshake.value.status == 429


@each("path", ["/livez", "/readyz", "/api/openapi.json", "/metrics", "/", "/static/app.js", "/pre", "/wrong host"])
async def test_paths_that_need_no_token_count_for_the_address_limit(serve: Serve, path: str) -> None:
    async with serve(address_requests_per_minute=12, metrics_open=True, base_path="/pre") as api:  # two at once
        api.url += "" if path == "/pre" else "/pre"
        headers = {"Host": "evil.example"} if path == "/wrong host" else {}
        (first, _, _), _, (last, _, _) = [await api.ask("GET", path, **headers) for _ in range(3)]
        assert (first == 429, last) == (False, 429)


async def test_an_address_without_a_token_is_limited_by_a_setting_of_its_own(serve: Serve) -> None:
    async with serve(stranger_requests_per_minute=60) as api:
        ana = await api.token()
        statuses = [(await api.ask("GET", "/api/jobs"))[0] for _ in range(20)]
        assert set(statuses) == {401, 429}
        assert (await api.ask("GET", "/api/jobs", ana))[0] == 200  # who has a token is not held up by strangers


async def test_arguments_may_be_nested_as_deep_as_the_setting_says(serve: Serve) -> None:
    def nested(app: Rowlock) -> None:
        @app.task("nest", public=True)
        async def nest(value: list) -> None: ...  # type: ignore[type-arg]

    async with serve(nested, argument_depth=3) as api:
        ana = await api.token()
        found = []
        for value in ([[[]]], [[[[]]]]):
            status, answer, _ = await api.ask("POST", "/api/jobs", ana, {"jobType": "nest", "args": {"value": value}})
            found.append(answer.get("code", status))
        assert found == [202, "INVALID_ARGUMENTS"]


async def test_connections_that_come_at_the_same_moment_are_counted_too(serve: Serve) -> None:
    async with serve(connections_per_owner=3) as api:
        ana = await api.token()

        async def first(path: str) -> int:
            async with api.http.get(api.url + path, headers={"Authorization": f"Bearer {ana}"}) as answer:
                if answer.status == 200:
                    await enough.wait()
                return answer.status

        enough = asyncio.Event()
        asked = [asyncio.ensure_future(first("/api/events")) for _ in range(12)]
        async with asyncio.timeout(60):
            while sum(one.done() for one in asked) < 9:
                await asyncio.sleep(0.02)
        enough.set()
        assert sorted(await asyncio.gather(*asked)) == [200] * 3 + [429] * 9


async def test_a_connection_that_ends_makes_room_for_another(serve: Serve) -> None:
    async with serve(connections_per_owner=1) as api:
        ana = await api.token()
        job_id = await api.create(ana, a=1)
        paths = ("/api/events", f"/api/jobs/{job_id}/events", None)
        for path in (*paths, *paths):
            assert await _open_and_leave(api, ana, path), f"{path or 'the socket'} is refused"
            async with asyncio.timeout(60):
                while api.service._connections:  # the server notices a little later that the client has left
                    await asyncio.sleep(0.02)


async def _open_and_leave(api: Api, token: str, path: str | None) -> bool:
    """Open a stream, or a socket without a path; False while it is refused."""
    if path is not None:
        async with api.http.get(api.url + path, headers={"Authorization": f"Bearer {token}"}) as answer:
            return answer.status == 200 and bool(await answer.content.readline())
    async with api.socket(token) as socket:
        return (await socket.next())["type"] == "ready"


# --- time


async def test_a_connection_that_sends_no_whole_head_is_closed(serve: Serve) -> None:
    async with serve(idle_seconds=0.5) as api:
        for begin in (b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
            assert await _is_left(api, begin, b"a")


async def test_the_second_request_on_a_connection_has_no_more_time_for_its_head(serve: Serve) -> None:
    async with serve(idle_seconds=0.5) as api:
        whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert await _is_left(api, whole + b"GET /livez HTTP/1.1\r\nX-Slow: ", b"a")
        assert await _is_left(api, whole, b"")


async def _is_left(api: Api, begin: bytes, drop: bytes) -> bool:
    """Whether the server closes a connection that sends a beginning and then a drop now and again."""
    reader, writer = await asyncio.open_connection(*api.url.removeprefix("http://").split(":"))
    try:
        writer.write(begin)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if begin and drop:
                writer.write(drop)
            try:
                async with asyncio.timeout(0.1):
                    if not await reader.read(4096):
                        return True
            except TimeoutError:
                continue
            except ConnectionError:
                return True
        return False
    finally:
        writer.close()


async def test_a_request_that_takes_longer_than_the_idle_time_is_answered(serve: Serve) -> None:
    async with serve(idle_seconds=0.3) as api:
        ana = await api.token()
        body = {"jobType": "add", "args": {"a": 1}}
        assert (await api.ask("POST", "/api/jobs", ana, body, Prefer="wait=1"))[0] == 202


async def test_a_socket_that_answers_no_ping_is_closed(serve: Serve) -> None:
    async with serve(idle_seconds=0.5) as api:
        reader, writer = await asyncio.open_connection(*api.url.removeprefix("http://").split(":"))
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /api/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {await api.token()}\r\n"
        head += (
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
        writer.write(f"{head}\r\n".encode())
        async with asyncio.timeout(30):
            assert b"101 Switching" in await reader.readline()
            while await reader.read(4096):
                pass
        writer.close()


async def test_a_socket_that_answers_pings_stays_open(serve: Serve) -> None:
    async with serve(idle_seconds=0.3) as api, AsyncExitStack() as stack:
        ana = await api.token()
        socket = await stack.enter_async_context(api.socket(ana))
        assert (await socket.next())["type"] == "ready"
        with pytest.raises(TimeoutError):  # nothing comes, neither an event nor an end
            await socket.next(2)


async def test_a_socket_that_does_not_say_who_it_is_is_closed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HELLO_SECONDS", 0.2)
    async with api.socket() as socket:
        assert await socket.closed() == sockets.REFUSED


# --- results


async def test_a_result_that_is_too_large_fails_the_job_and_leaves_no_file(app_url: str, tmp_path: Path) -> None:
    flags = {"database": app_url, "results.path": str(tmp_path / "results"), "results.file_bytes": 10}
    app = Rowlock(settings=load_settings(env={}, flags=flags))

    @app.task("write")
    async def write(ctx: Context, size: int) -> None:
        ctx.result_file("out.bin").write_bytes(b"x" * size)

    async with app, app.worker():
        fits, too_large = [await write.enqueue(size=size) for size in (10, 11)]
        await fits.wait(timeout=60)
        with pytest.raises(Exception, match=r"results\.file_bytes allows 10"):
            await too_large.wait(timeout=60)
    assert (await app.job(too_large.id)).record.error_code == "RESULT_TOO_LARGE"
    assert [file.parent.parent.name for file in (tmp_path / "results").rglob("out.bin")] == [fits.id]


@pytest.mark.parametrize("engine", ENGINES)
async def test_jobs_that_two_servers_create_at_the_same_moment_count_for_the_limit_of_their_owner(serve: Serve) -> None:
    async with serve(jobs_per_owner=3) as api, serve(jobs_per_owner=3) as other:
        ana, bob = await api.token("ana"), await api.token("bob")
        body = {"jobType": "add", "args": {"a": 1}}
        asked = [server.ask("POST", "/api/jobs", ana, body) for _ in range(10) for server in (api, other)]
        asked += [api.ask("POST", "/api/jobs", ana, body, Idempotency_Key=f"key {number}") for number in range(5)]
        answers = await asyncio.gather(*asked)
        assert len([status for status, _, _ in answers if status == 202]) == 3
        assert {answer["code"] for status, answer, _ in answers if status != 202} == {"TOO_MANY_JOBS"}
        assert len((await api.ask("GET", "/api/jobs", ana))[1]["items"]) == 3
        await api.create(bob, a=1)
