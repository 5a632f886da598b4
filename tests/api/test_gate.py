"""What every request must pass: the Host header, the size and pace of its body, how often somebody asks; and what is
logged of it."""

import asyncio
import logging
from urllib.parse import urlsplit

import pytest

from api.conftest import Api, Serve
from rowlock.api.gate import Buckets
from rowlock.api.problems import Refusal


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
async def test_a_request_for_another_host_is_refused_also_on_the_loopback(api: Api, host: str) -> None:
    status, problem, _ = await api.ask("GET", "/api/jobs", await api.token(), Host=host)
    assert (status, problem["code"]) == (400, "INVALID_HOST")


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:80", "[::1]:80", "API.Example:443"])
async def test_the_names_of_this_server_are_known(serve: Serve, host: str) -> None:
    async with serve(allowed_hosts=["api.example"]) as api:
        assert (await api.ask("GET", "/api/jobs", await api.token(), Host=host))[0] == 200


async def test_a_body_up_to_the_limit_is_read_and_a_larger_one_is_refused(serve: Serve) -> None:
    async with serve(body_bytes=2000) as api:
        ana = await api.token()
        body = b'{"jobType": "add", "args": {"a": 1}}'
        assert (await api.ask("POST", "/api/jobs", ana, body.ljust(2000)))[0] == 202
        status, problem, _ = await api.ask("POST", "/api/jobs", ana, body.ljust(2001))
        assert (status, problem["code"]) == (413, "BODY_TOO_LARGE")
        assert len(await api.app.jobs()) == 1


async def raw(api: Api, text: bytes, seconds: float = 10) -> bytes:
    """What the server says to these bytes, up to the end of the connection or a pause."""
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(text)
    await writer.drain()
    try:
        async with asyncio.timeout(seconds):
            return await reader.read(100_000)
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


SMUGGLED = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "a length that is none": b"Content-Length: +2\r\n\r\n{}",
    "line folding": b"X-One: a\r\n b: c\r\nContent-Length: 2\r\n\r\n{}",
    "a space before the colon": b"Content-Length : 2\r\n\r\n{}",
    "two hosts": b"Host: evil.example\r\nContent-Length: 2\r\n\r\n{}",
    "a NUL in a value": b"X-One: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED.keys())
async def test_requests_that_two_servers_could_read_differently_are_refused(api: Api, rest: bytes) -> None:
    ana = await api.token()
    head = f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ana}\r\n".encode()
    answer = await raw(api, head + rest, 3)
    assert answer == b"" or answer.split()[1] in (b"400", b"422"), answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert await api.app.jobs() == []


async def test_too_many_requests_of_one_token_wait_and_another_is_not_held_up(serve: Serve) -> None:
    async with serve(requests_per_minute=60) as api:  # ten at once, then one a second
        ana, bob = await api.token("ana"), await api.token("bob")
        answers = [await api.ask("GET", "/api/jobs", ana) for _ in range(20)]
        refused = [answer for answer in answers if answer[0] == 429]
        assert refused
        assert refused[0][1]["code"] == "TOO_MANY_REQUESTS"
        assert int(refused[0][2]["retry-after"]) >= 1
        assert (await api.ask("GET", "/api/jobs", bob))[0] == 200


def test_a_bucket_gives_what_its_rate_allows_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("rowlock.api.gate.time.monotonic", lambda: now)
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
