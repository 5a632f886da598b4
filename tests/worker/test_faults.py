"""Whose fault an exception is: the source's, a refusal, or nobody's; by its shape, as the HTTP libraries make them."""

import asyncio
import email.message
import http.client
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock import Permanent, Retry, Snooze, SourceError
from rowlock.worker.attempt.classify import Verdict, verdict
from support.each import each

SOURCE, REFUSAL, NOBODY = Verdict("source"), Verdict("refusal"), Verdict()

# The libraries' own class names and hierarchies, without the libraries.


class Httpx:
    """httpx: a response hangs on HTTPStatusError; every broken connection is a TransportError."""

    HTTPError = type("HTTPError", (Exception,), {})
    TransportError = type("TransportError", (HTTPError,), {})
    TimeoutException = type("TimeoutException", (TransportError,), {})
    ReadTimeout = type("ReadTimeout", (TimeoutException,), {})
    ConnectError = type("ConnectError", (type("NetworkError", (TransportError,), {}),), {})
    RemoteProtocolError = type("RemoteProtocolError", (type("ProtocolError", (TransportError,), {}),), {})
    LocalProtocolError = type("LocalProtocolError", (type("ProtocolError", (TransportError,), {}),), {})
    UnsupportedProtocol = type("UnsupportedProtocol", (TransportError,), {})
    DecodingError = type("DecodingError", (type("RequestError", (HTTPError,), {}),), {})
    InvalidURL = type("InvalidURL", (Exception,), {})

    class HTTPStatusError(HTTPError):
        def __init__(self, status: int, headers: Any = None) -> None:
            self.response = SimpleNamespace(status_code=status, headers=headers or {})


class Aiohttp:
    """aiohttp: the status is on the error itself."""

    ClientError = type("ClientError", (Exception,), {})
    ClientConnectionError = type("ClientConnectionError", (ClientError,), {})
    ServerDisconnectedError = type("ServerDisconnectedError", (ClientConnectionError,), {})
    ServerTimeoutError = type("ServerTimeoutError", (ClientConnectionError, asyncio.TimeoutError), {})
    ClientPayloadError = type("ClientPayloadError", (ClientError,), {})
    InvalidURL = type("InvalidURL", (ClientError, ValueError), {})

    class ClientResponseError(ClientError):
        def __init__(self, status: int, headers: Any = None) -> None:
            self.status, self.headers = status, headers


class Requests:
    """requests: everything is an OSError, and only some of it is the other side's."""

    RequestException = type("RequestException", (OSError,), {"response": None})
    ConnectionError = type("ConnectionError", (RequestException,), {})
    ReadTimeout = type("ReadTimeout", (type("Timeout", (RequestException,), {}),), {})
    ChunkedEncodingError = type("ChunkedEncodingError", (RequestException,), {})
    MissingSchema = type("MissingSchema", (RequestException, ValueError), {})

    class HTTPError(RequestException):
        def __init__(self, status: int, headers: Any = None) -> None:
            self.response = SimpleNamespace(status_code=status, headers=headers or {})


def urllib_error(status: int, headers: dict[str, str] | None = None) -> urllib.error.HTTPError:
    message = email.message.Message()
    for name, value in (headers or {}).items():
        message[name] = value
    return urllib.error.HTTPError("https://example.com", status, "no", message, None)


ANSWERS = [Httpx.HTTPStatusError, Aiohttp.ClientResponseError, Requests.HTTPError, urllib_error]
answers = each("answer", ANSWERS, ids=["httpx", "aiohttp", "requests", "urllib"])


@each(
    "error",
    [
        TimeoutError(),
        TimeoutError("timed out"),
        ConnectionResetError("reset by peer"),
        ConnectionRefusedError(),
        BrokenPipeError(),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError("handshake failure"),
        urllib.error.URLError(ConnectionRefusedError()),
        Httpx.ReadTimeout(),
        Httpx.ConnectError("all attempts failed"),
        Httpx.RemoteProtocolError("server disconnected"),
        Aiohttp.ServerDisconnectedError(),
        Aiohttp.ServerTimeoutError(),
        Requests.ConnectionError(),
        Requests.ReadTimeout(),
        # Broken in the middle of the answer.
        http.client.IncompleteRead(b"half"),
        Aiohttp.ClientPayloadError("not enough data"),
        Requests.ChunkedEncodingError("connection broken"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_timeouts_and_broken_connections_are_the_sources_fault(error: Exception) -> None:
    assert verdict(error) == SOURCE


@answers
@each("status", [500, 502, 503, 504, 599, 429])
def test_answers_5xx_and_429_are_the_sources_fault(answer: Any, status: int) -> None:
    assert verdict(answer(status)) == SOURCE


@answers
@each("status", [400, 401, 404, 409, 410, 422])
def test_other_4xx_answers_are_not_the_sources_fault(answer: Any, status: int) -> None:
    assert verdict(answer(status)) == NOBODY


@answers
def test_forbidden_is_a_refusal(answer: Any) -> None:
    assert verdict(answer(403)) == REFUSAL


@each(
    "error",
    [
        ValueError("not a number"),
        KeyError("price"),
        AttributeError(),
        ZeroDivisionError(),
        AssertionError(),
        FileNotFoundError("config.json"),
        PermissionError(13, "denied"),
        OSError(28, "No space left on device"),
        RuntimeError("HTTP 503"),
        asyncio.CancelledError(),
        Httpx.DecodingError(),
        Httpx.InvalidURL(),
        Httpx.UnsupportedProtocol("Request URL is missing an 'http://' or 'https://' protocol."),
        Httpx.LocalProtocolError("Illegal header value"),
        Aiohttp.InvalidURL(),
        Requests.MissingSchema(),
        Snooze(5),
        Retry("later", after=60),
        Permanent("a broken page"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_handler_bugs_and_cancels_are_nobodys_fault(error: BaseException) -> None:
    assert verdict(error) == NOBODY


@answers
@each("status", [429, 503])
def test_retry_after_in_seconds_is_honoured(answer: Any, status: int) -> None:
    assert verdict(answer(status, {"Retry-After": "120"})) == Verdict("source", 120.0)
    assert verdict(answer(status, {"Retry-After": " 7 "})) == Verdict("source", 7.0)


def test_a_header_is_found_whatever_its_case() -> None:
    assert verdict(urllib_error(503, {"RETRY-AFTER": "7"})) == Verdict("source", 7.0)
    assert verdict(Httpx.HTTPStatusError(503, {"retry-after": "7"})) == Verdict("source", 7.0)


@answers
def test_retry_after_as_a_date_is_told_by_the_sources_own_clock(answer: Any) -> None:
    its_now = datetime(2001, 1, 1, tzinfo=UTC)  # a source whose clock is wrong
    later = format_datetime(its_now + timedelta(seconds=90), usegmt=True)
    headers = {"Date": format_datetime(its_now, usegmt=True), "Retry-After": later}
    assert verdict(answer(429, headers)) == Verdict("source", 90.0)


def test_retry_after_as_a_date_without_its_clock_is_told_by_ours() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    fault, seconds = verdict(Httpx.HTTPStatusError(429, {"Retry-After": later}))
    assert fault == "source"
    assert seconds == pytest.approx(3600, abs=60)


@each("bad", ["", "soon", "-5", "1.5e9x", "Mon, 99 Foo 2026", "0"])
def test_a_retry_after_that_says_nothing_is_none(bad: str) -> None:
    assert verdict(Httpx.HTTPStatusError(503, {"Retry-After": bad})) == SOURCE


ABSURD = [
    "Wed, 21 Oct 2026 07:28:00 +999999999999",
    "Wed, 21 Oct 2026 07:28:00 +99999999999999999999",
    "Wed, 21 Oct 2026 07:28:00 -99999",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Wed, 21 Oct 99999999999 07:28:00 GMT",
    "9" * 5000,
    "²",
    "٣",
]


@each("told", ABSURD)
@each("name", ["Retry-After", "Date"])
def test_whatever_a_server_writes_into_its_headers_the_verdict_is_a_delay_within_a_day(told: str, name: str) -> None:
    headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT", name: told}
    fault, delay = verdict(Httpx.HTTPStatusError(429, headers))
    assert fault == "source"
    assert delay is None or 0 < delay <= 86_400


def test_a_retry_after_in_the_past_is_none_and_one_of_a_year_is_cut() -> None:
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    assert verdict(Httpx.HTTPStatusError(503, {"Retry-After": past})) == SOURCE
    assert verdict(Httpx.HTTPStatusError(503, {"Retry-After": "31536000"})) == Verdict("source", 86_400.0)


def test_a_handler_can_blame_the_source_by_source_error_or_retry() -> None:
    assert verdict(SourceError("it answers nonsense")) == SOURCE
    assert verdict(SourceError("later", retry_after=timedelta(minutes=2))) == Verdict("source", 120.0)
    assert verdict(Retry(code="HTTP_502")) == verdict(Retry(code="TIMEOUT")) == SOURCE
    assert verdict(Retry(after=60, code="HTTP_429")) == Verdict("source", 60.0)
    assert verdict(Retry(after=60, code="HTTP_502")) == SOURCE, "a delay of the job, not of the source"


@each("code", ["HTTP_403", "ROBOTS", "CAPTCHA"])
def test_a_permanent_403_robots_or_captcha_is_a_refusal(code: str) -> None:
    assert verdict(Permanent("go away", code=code)) == REFUSAL


def wrapped(outer: BaseException, *causes: BaseException) -> BaseException:
    """`raise outer from causes[0]`, which was raised from the next."""
    for error, cause in zip((outer, *causes), causes, strict=False):
        error.__cause__ = cause
    return outer


def test_the_cause_of_a_wrapped_exception_decides_the_verdict() -> None:
    assert verdict(wrapped(RuntimeError("import failed"), TimeoutError())) == SOURCE
    assert verdict(wrapped(RuntimeError(), ValueError(), ConnectionResetError())) == SOURCE
    assert verdict(wrapped(RuntimeError(), Aiohttp.ClientResponseError(403))) == REFUSAL
    assert verdict(wrapped(RuntimeError(), KeyError("x"))) == NOBODY


def test_a_retry_that_wraps_a_429_carries_what_the_source_asked_for() -> None:
    limited = Httpx.HTTPStatusError(429, {"Retry-After": "90"})
    assert verdict(wrapped(Retry(after=60), limited)) == Verdict("source", 90.0)
    assert verdict(wrapped(Retry(), limited)) == Verdict("source", 90.0)
    assert verdict(wrapped(Retry(after=60), TimeoutError())) == SOURCE


def test_errors_that_cause_each_other_are_no_endless_search() -> None:
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert verdict(first) == NOBODY


def test_an_error_whose_attributes_are_odd_is_nobodys_fault() -> None:
    class Odd(Exception):
        status_code, code, status = "503", True, 7
        headers = 5
        response = object()

    assert verdict(Odd()) == NOBODY


def test_the_code_of_an_exit_is_no_status() -> None:
    assert verdict(SystemExit(503)) == NOBODY
