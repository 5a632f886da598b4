"""`rowlock serve` as a process: what it refuses, and how it ends."""

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from api.test_flow import new_token, ready
from cli.command import Cli, Inside
from rowlock.api.live import sockets
from support.each import each
from support.servers.postgres import free_port


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    yield cli
    cli.close()


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    return Inside.enter(tmp_path, f"sqlite:///{tmp_path}/jobs.db", monkeypatch, capsys)


@each(
    "words, message",
    [
        (("--port", "many"), "port"),
        (("--port", "65536"), "port"),
        (("--host", "not a host", "--port", "0"), "not a host"),
        (("--host", "192.0.2.1", "--port", "0"), "rowlock tokens create"),
        (("--host", "::", "--port", "0"), "rowlock tokens create"),
    ],
)
def test_serve_says_in_one_line_what_it_cannot_do(inside: Inside, words: tuple[str, ...], message: str) -> None:
    assert message in inside.error("serve", *words, "--log-level", "error", code=2)


def test_serve_refuses_a_port_that_is_taken(cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1:{port}" in cli.error(
            "serve", "--port", port, "--log-level", "error", code=2
        )


def test_serve_names_the_command_that_migrates_the_database(tmp_path: Path, postgres_url: str) -> None:
    cli = Cli(tmp_path, postgres_url)
    told = cli.run("serve", "--port", "0", "--log-level", "error", code=1)
    assert "rowlock migrate" in told.stderr
    assert "Traceback" not in told.stderr


async def test_a_stop_signal_ends_open_sockets_and_streams_at_once(cli: Cli, tmp_path: Path) -> None:
    token, port = await new_token(f"sqlite:///{tmp_path}/jobs.db"), free_port()
    server = cli.start("serve", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(90), aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        await ready(http, url)
        async with http.ws_connect(f"{url}/api/ws") as watched, http.get(f"{url}/api/events") as stream:
            assert (await watched.receive_json())["type"] == "ready"
            assert (await stream.content.readline()).startswith(b"event: ready")
            started = time.monotonic()
            assert await asyncio.to_thread(server.stop) == 0
            assert time.monotonic() - started < 15
            message = await watched.receive()
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, sockets.RESTART)
            await stream.read()  # to its end, which came in order
    assert "Traceback" not in server.log


async def test_serve_prints_an_operators_login_link_when_asked(cli: Cli) -> None:
    port = free_port()
    server = cli.start("serve", "--port", str(port), "--login-link")
    url = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(90), aiohttp.ClientSession() as http:
        await ready(http, url)
        while "#once=" not in server.log:
            await asyncio.sleep(0.05)
        link = next(word for word in server.log.split() if word.startswith(f"{url}/#once="))
        async with http.post(f"{url}/api/session", json={"once": link.partition("#once=")[2]}) as answer:
            assert (await answer.json())["scope"] == "operator"
        assert server.log.count("#once=") == 1
        (session,) = cli.json("tokens", "list")
        assert (session["kind"], session["scope"]) == ("session", "operator")
        assert cli.json("tokens", "revoke", session["id"]) == {"revoked": [session["id"]]}
