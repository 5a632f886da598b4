"""What every request must pass: the Host header, the size and pace of its body, how often somebody asks; and what is
logged of it."""

import asyncio
import logging
import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from starlette.requests import HTTPConnection

from api.conftest import Api, Serve
from rowlock.api.access.cookies import may_come_from
from rowlock.api.access.gate import Buckets, read_body
from rowlock.api.problems import Refusal
from rowlock.core.config import ApiSettings
from support.each import each


@pytest.fixture
def engine() -> str:
    """The gate stands before the store: one engine is enough."""
    return "sqlite"


@each("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
async def test_a_request_for_another_host_is_refused_also_on_the_loopback(api: Api, host: str) -> None:
    status, problem, _ = await api.ask("GET", "/api/jobs", await api.token(), Host=host)
    assert (status, problem["code"]) == (400, "INVALID_HOST")


async def test_a_socket_for_another_host_is_refused(api: Api) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await api.http.ws_connect(f"{api.url}/api/ws", headers={"Host": "evil.example"})


async def test_the_names_of_this_server_are_known(serve: Serve) -> None:
    async with serve(allowed_hosts=["api.example"]) as api:
        ana = await api.token()
        for host in ("localhost", "localhost:1234", "127.0.0.1:80", "[::1]:80", "API.Example:443"):
            assert (await api.ask("GET", "/api/jobs", ana, Host=host))[0] == 200, host


async def test_a_body_up_to_the_limit_is_read_and_a_larger_one_is_refused(serve: Serve) -> None:
    async with serve(body_bytes=2000) as api:
        ana = await api.token()
        body = b'{"jobType": "add", "args": {"a": 1}}'
        assert (await api.ask("POST", "/api/jobs", ana, body.ljust(2000)))[0] == 202
        status, problem, _ = await api.ask("POST", "/api/jobs", ana, body.ljust(2001))
        assert (status, problem["code"]) == (413, "BODY_TOO_LARGE")
        assert len(await api.app.jobs()) == 1


async def raw(api: Api, text: bytes, seconds: float = 10, *, to_end: bool = False) -> bytes:
    """What the server says to these bytes, up to a pause or to the end of the connection."""
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(text)
    await writer.drain()
    try:
        async with asyncio.timeout(seconds):
            return await reader.read(-1 if to_end else 100_000)
    except TimeoutError:
        return b""
    finally:
        writer.close()


async def test_a_body_without_a_length_is_cut_off_at_the_limit(serve: Serve) -> None:
    async with serve(body_bytes=2000) as api:
        ana = await api.token()
        head = f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ana}\r\n"
        chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
        answer = await raw(api, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 5)
        assert b" 413 " in answer.splitlines()[0]


async def test_a_body_that_comes_too_slowly_is_given_up(serve: Serve) -> None:
    async with serve(body_seconds=0.3) as api:
        ana = await api.token()
        head = (
            f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ana}\r\nContent-Length: 100\r\n\r\n"
        )
        answer = await raw(api, head.encode() + b"{")
        assert b" 408 " in answer.splitlines()[0]


async def drip(api: Api, head: str, seconds: float = 20) -> bytes:
    """What the server says to a request whose body comes byte by byte, until it closes the connection."""
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)

    async def send() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.05)

    writer.write(head.encode())
    dripping, received = asyncio.ensure_future(send()), b""
    try:
        async with asyncio.timeout(seconds):
            while part := await reader.read(65_536):
                received += part
    except ConnectionResetError:
        pass  # a byte was sent after the end: the answer came before
    finally:
        dripping.cancel()
        writer.close()
    return received


async def test_a_refused_request_whose_body_drips_loses_its_connection(serve: Serve) -> None:
    refused = {
        "POST /api/jobs": b"401",
        "GET /api/jobs": b"401",
        "POST /api/session?x": b"403",
        "GET /pre": b"307",
    }
    async with serve(body_seconds=0.5, base_path="/pre") as api:

        async def status(request_line: str) -> bytes:
            origin = "Origin: https://evil.example\r\n" if "session" in request_line else ""
            head = f"{request_line} HTTP/1.1\r\nHost: localhost\r\n{origin}Content-Length: 1000000\r\n\r\n"
            return (await drip(api, head)).split(b" ")[1]

        statuses = await asyncio.gather(*(status(request_line) for request_line in refused))
        assert dict(zip(refused, statuses, strict=True)) == refused


async def test_two_hundred_dripping_requests_hold_up_nobody_and_all_lose_their_connections(serve: Serve) -> None:
    async with serve(body_seconds=1.0, stranger_requests_per_minute=100_000) as api:
        ana = await api.token()
        head = "POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        dripping = [asyncio.ensure_future(drip(api, head, 60)) for _ in range(200)]
        async with asyncio.timeout(60):
            while not all(one.done() for one in dripping):
                assert (await api.ask("GET", "/api/jobs", ana))[0] == 200
                await asyncio.sleep(0.1)
        assert all(b" 401 " in one.result()[:20] or one.result() == b"" for one in dripping)


@each(
    "method, header",
    [
        ("GET", "Content-Length: 100000\r\n"),
        ("GET", "Transfer-Encoding: chunked\r\n"),
        ("POST", ""),
        ("GET", "X-A: b\r\n" * 130),
        ("GET", f"X-A: {'b' * 9000}\r\n"),
    ],
    ids=["length", "chunks", "method", "many headers", "long header"],
)
async def test_a_request_for_a_websocket_that_the_library_cannot_parse_loses_its_connection(
    api: Api, method: str, header: str
) -> None:
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    head = f"{method} /api/ws HTTP/1.1\r\nHost: localhost\r\n{upgrade}{key}{header}\r\n"
    assert b" 101 " not in await drip(api, head)


async def test_after_a_refused_request_whose_body_came_in_time_the_next_one_is_served(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(body_seconds=1.0) as api:
        monkeypatch.setitem(api.service.settings.__dict__, "body_seconds", 60.0)  # of requests that are not refused
        ana, address = await api.token(), urlsplit(api.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        async with asyncio.timeout(30):
            writer.write(new_job("nobody").replace("Connection: close\r\n", "").encode() + NEW_JOB[:-1])
            assert b" 401 " in await reader.readuntil(b"\r\n")
            # The second request begins in the packet in which the body of the first one ends, and its own is late.
            writer.write(NEW_JOB[-1:] + new_job(ana).encode())
            await asyncio.sleep(1.5)  # longer than the rest of the first body had
            writer.write(NEW_JOB)
            assert b" 202 " in await reader.read()
        writer.close()


# A request that creates a job, and what is put in place of one of its lines. A generous server would create a job.
NEW_JOB = b'{"jobType": "add", "args": {"a": 1}}'
LENGTH = f"Content-Length: {len(NEW_JOB)}\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(NEW_JOB), NEW_JOB)
START = "POST /api/jobs HTTP/1.1\r\n"
SMUGGLED = {
    "length and chunks": (LENGTH, LENGTH + CHUNKED, CHUNKS),
    "chunks and length": (LENGTH, CHUNKED + LENGTH, CHUNKS),
    "two lengths": (LENGTH, LENGTH + "Content-Length: 3\r\n", NEW_JOB),
    "one length twice": (LENGTH, LENGTH + LENGTH, NEW_JOB),
    "one length as a list": (LENGTH, LENGTH.rstrip() + f", {len(NEW_JOB)}\r\n", NEW_JOB),
    "a length with a sign": (LENGTH, LENGTH.replace(": ", ": +"), NEW_JOB),
    "a space before the colon": (LENGTH, LENGTH.replace(":", " :"), NEW_JOB),
    "chunked twice": (LENGTH, CHUNKED + CHUNKED, CHUNKS),
    "another encoding": (LENGTH, "Transfer-Encoding: identity\r\n", NEW_JOB),
    "chunks in HTTP/1.0": (START, START.replace("1.1", "1.0"), NEW_JOB),
    "line folding": (LENGTH, "X-One: a\r\n b\r\n" + LENGTH, NEW_JOB),
    "line folding with a tab": (LENGTH, "X-One: a\r\n\tb\r\n" + LENGTH, NEW_JOB),
    "a bare line feed": (LENGTH, LENGTH.replace("\r", ""), NEW_JOB),
    "a bare line feed after the method": (START, START.replace("\r", ""), NEW_JOB),
    "a bare carriage return": (LENGTH, "X-One: a\rb\r\n" + LENGTH, NEW_JOB),
    "two hosts": (LENGTH, "Host: evil.example\r\n" + LENGTH, NEW_JOB),
    "two tokens": (LENGTH, "Authorization: Bearer other\r\n" + LENGTH, NEW_JOB),
    "a NUL in a value": (LENGTH, "X-One: a\x00b\r\n" + LENGTH, NEW_JOB),
}


def new_job(token: str, length: str = LENGTH) -> str:
    """The head of a request that creates a job."""
    kind = "Content-Type: application/json\r\nConnection: close\r\n"
    return f"{START}Host: localhost\r\nAuthorization: Bearer {token}\r\n{kind}{length}\r\n"


@each("line, instead, body", SMUGGLED.values(), ids=SMUGGLED.keys())
async def test_requests_that_two_servers_could_read_differently_are_refused(
    api: Api, line: str, instead: str, body: bytes
) -> None:
    ana, before = await api.token(), await api.app.jobs()
    if "1.0" in instead:
        head, body = new_job(ana, CHUNKED).replace(line, instead), CHUNKS
    else:
        head = new_job(ana).replace(line, instead)
    assert head != new_job(ana)
    answer = await raw(api, head.encode("latin-1") + body, 5)
    assert answer == b"" or answer.split()[1] in (b"400", b"401"), answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert len(await api.app.jobs()) == len(before)


@each("length, body", [(LENGTH, NEW_JOB), (CHUNKED, CHUNKS)], ids=["length", "chunks"])
async def test_the_request_of_these_tests_is_accepted_as_it_stands(api: Api, length: str, body: bytes) -> None:
    whole = new_job(await api.token(), length).encode() + body
    assert b" 202 " in (await raw(api, whole)).splitlines()[0]


async def test_a_second_request_on_a_connection_is_looked_at_like_the_first(api: Api) -> None:
    ana = await api.token()
    first = new_job(ana).replace("Connection: close\r\n", "").encode() + NEW_JOB
    second = new_job(ana).replace("\r\n", "\n").encode() + NEW_JOB
    answer = await raw(api, first + second, to_end=True)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"202", b"400"]
    assert len(await api.app.jobs()) == 1


async def test_a_client_that_leaves_before_the_end_of_its_body_creates_nothing(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has sent is a whole job; the length says that more was to come."""
    caplog.set_level(logging.INFO, "rowlock.api.access")
    address = urlsplit(api.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    head = new_job(await api.token(), f"Content-Length: {len(NEW_JOB) + 10}\r\n")
    writer.write(head.encode() + NEW_JOB)
    await writer.drain()
    writer.close()
    async with asyncio.timeout(20):
        while not any("POST /api/jobs" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.02)
    assert await api.app.jobs() == []


async def test_a_body_that_breaks_off_is_none_although_what_came_is_a_whole_job() -> None:
    messages = iter([{"type": "http.request", "body": NEW_JOB, "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    scope = {"type": "http", "http_version": "1.1", "headers": [(b"content-length", b"100")]}
    assert await read_body(scope, receive, ApiSettings()) is None


ORIGINS = ["http://evil.example", "null", "https://127.0.0.1.evil.example", "file://", "", "http://[", "//127.0.0.1"]


@each("origin", ORIGINS)
async def test_a_page_of_another_origin_changes_nothing(api: Api, origin: str) -> None:
    ana = await api.token()
    job_id = await api.create(ana, a=1)
    before = [job.state for job in await api.app.jobs()]
    for path in ("/api/jobs", f"/api/jobs/{job_id}/cancel", "/api/tickets"):
        body = {"jobType": "add", "args": {"a": 1}} if path == "/api/jobs" else None
        status, problem, _ = await api.ask("POST", path, ana, body, Origin=origin)
        assert (status, problem["code"]) == (403, "INVALID_ORIGIN")
    assert [job.state for job in await api.app.jobs()] == before
    assert set(before) == {"queued"}


async def test_a_page_of_this_server_or_of_a_named_origin_may_create_jobs(serve: Serve) -> None:
    async with serve(cors_origins=["https://shop.example"]) as api:
        ana = await api.token()
        for origin in (api.url, "https://shop.example"):
            status, _, headers = await api.ask(
                "POST", "/api/jobs", ana, {"jobType": "add", "args": {"a": 1}}, Origin=origin
            )
            assert status == 202
        assert headers["access-control-allow-origin"] == "https://shop.example"


@each(
    "scheme, origin, allowed",
    [
        ("wss", "http://api.example", False),  # anybody on the way can write a page that is not encrypted
        ("https", "http://api.example", False),
        ("wss", "https://api.example", True),
        ("ws", "https://api.example", True),  # a proxy in front speaks TLS
        ("ws", "http://api.example", True),
        ("ws", "http://api.example:80", False),
    ],
)
def test_an_origin_is_this_servers_only_with_its_host_and_not_with_less_protection(
    scheme: str, origin: str, allowed: bool
) -> None:
    headers = [(b"host", b"api.example"), (b"origin", origin.encode())]
    scope = {"type": "websocket", "scheme": scheme, "headers": headers}
    assert may_come_from(HTTPConnection(scope), ()) is allowed
    twice = {**scope, "headers": [*headers, (b"origin", origin.encode())]}
    assert not may_come_from(HTTPConnection(twice), ())


async def test_too_many_requests_of_one_token_wait_and_another_is_not_held_up(serve: Serve) -> None:
    async with serve(requests_per_minute=60) as api:  # ten at once, then one a second
        ana, bob = await api.token("ana"), await api.token("bob")
        answers = [await api.ask("GET", "/api/jobs", ana) for _ in range(20)]
        refused = [answer for answer in answers if answer[0] == 429]
        assert refused
        assert refused[0][1]["code"] == "TOO_MANY_REQUESTS"
        assert int(refused[0][2]["retry-after"]) >= 1
        assert (await api.ask("GET", "/api/jobs", bob))[0] == 200


@each(
    "proxies, answers",
    [([], [401, 429, 429, 429]), (["192.0.2.99"], [401, 429, 429, 429]), (["127.0.0.1"], [401] * 4)],
    ids=["no proxy", "another proxy", "this proxy"],
)
async def test_the_address_that_a_header_names_counts_only_from_a_trusted_proxy(
    serve: Serve, proxies: list[str], answers: list[int]
) -> None:
    """Strangers are counted by their address: who could choose it, could ask as often as they like."""
    async with serve(trusted_proxies=proxies, stranger_requests_per_minute=6) as api:  # one at once
        found = [(await api.ask("GET", "/api/jobs", X_Forwarded_For=f"192.0.2.{n}"))[0] for n in range(4)]
        assert found == answers


def test_a_bucket_gives_what_its_rate_allows_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("rowlock.api.access.gate.time.monotonic", lambda: now)
    buckets = Buckets(60)
    for _ in range(10):
        buckets.spend("a")
    with pytest.raises(Refusal) as refused:
        buckets.spend("a")
    assert refused.value.headers == {"Retry-After": "2"}
    now = 1.0
    buckets.spend("a")
    for number in range(Buckets.MOST):
        buckets.spend(f"other {number}")
    for _ in range(10):
        buckets.spend("a")  # forgotten, so its bucket is full again


async def test_answers_carry_the_headers_that_keep_browsers_from_guessing(api: Api) -> None:
    _, _, headers = await api.ask("GET", "/api/jobs", await api.token())
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert "server" not in headers


async def test_the_log_has_a_line_for_each_request_and_no_token_or_query(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    ana = await api.token()
    caplog.set_level(logging.DEBUG)
    _, body, _ = await api.ask("POST", "/api/tickets", ana)
    await api.ask("GET", "/api/jobs?jobType=canary", ana)
    async with api.http.ws_connect(f"{api.url.replace('http', 'ws')}/api/ws?ticket={body['ticket']}") as socket:
        await socket.receive()
    lines = [record.getMessage() for record in caplog.records]
    ours = [record.getMessage() for record in caplog.records if record.name == "rowlock.api.access"]
    assert any(line.startswith("GET /api/jobs 200 ") for line in ours)
    assert not any(secret in line for line in lines for secret in (ana, body["ticket"], "canary"))


async def test_probes_need_no_token_and_tell_no_secret(api: Api) -> None:
    assert (await api.ask("GET", "/livez"))[:2] == (200, b"ok")
    assert (await api.ask("GET", "/readyz"))[:2] == (200, b"ok")


async def test_the_document_of_the_api_is_openapi_3_1_and_describes_every_answer(api: Api) -> None:
    status, document, _ = await api.ask("GET", "/api/openapi.json")
    assert (status, document["openapi"][:3]) == (200, "3.1")
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            if path not in ("/livez", "/readyz"):
                assert {"401", "429", "503"} <= set(route["responses"]), (method, path)


async def test_an_unknown_route_is_a_problem_too(api: Api) -> None:
    ana = await api.token()
    assert (await api.ask("GET", "/api/nothing", ana))[1]["code"] == "NOT_FOUND"
    assert (await api.ask("DELETE", "/api/jobs", ana))[1]["code"] == "METHOD_NOT_ALLOWED"
    assert (await api.ask("GET", "/api/nothing"))[1]["code"] == "UNAUTHORIZED"


REPEATED = {
    "an argument": b'{"jobType": "add", "args": {"a": 1, "a": 2}}',
    "a field": b'{"jobType": "secret", "jobType": "add", "args": {"a": 1}}',
    "inside of a list": b'{"jobType": "echo", "args": {"value": [{"x": 1}, {"x": 1, "y": 2, "x": 3}]}}',
    "spelt in another way": b'{"jobType": "add", "args": {"a": 1, "\\u0061": 2}}',
}


@each("body", REPEATED.values(), ids=REPEATED.keys())
async def test_a_body_with_one_name_twice_in_an_object_is_refused(api: Api, body: bytes) -> None:
    ana = await api.token()
    status, problem, _ = await api.ask("POST", "/api/jobs", ana, body)
    assert (status, problem["code"]) == (400, "REPEATED_NAME")
    assert "appears twice" in problem["detail"]
    assert (await api.ask("GET", "/api/jobs", ana))[1]["items"] == []


async def test_one_name_in_two_objects_of_a_body_is_accepted(api: Api) -> None:
    body = b'{"jobType": "echo", "args": {"value": [{"x": 1}, {"x": 2, "value": {"x": 3}}]}}'
    assert (await api.ask("POST", "/api/jobs", await api.token(), body))[0] == 202
