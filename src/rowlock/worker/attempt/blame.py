"""Whether the source or the handler caused a failure, judged by the exception.

HTTP libraries are recognised by the shape of their errors, never by an import: a status, a response with headers, the
name of a class for timeouts or broken connections. Causes (`raise MyError from error`) are examined, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from rowlock.core.errors import Permanent, Retry, SourceError
from rowlock.core.sources.admission import Fault

LONGEST_RETRY_AFTER = 86_400.0
WRAPPED = 5  # links of an exception's chain of causes that are followed
REFUSALS = {"ROBOTS", "CAPTCHA", "BLOCKED", "FORBIDDEN"}
BROKEN = {"TIMEOUT", "CONNECTION", "CONNECTION_ERROR", "SOURCE_ERROR", "RATE_LIMITED"}
# Names in the class hierarchies of the standard library, httpx, aiohttp, requests, urllib3 and botocore.
CLASSES = {
    *("TimeoutError", "ConnectionError", "gaierror", "herror", "SSLError", "URLError"),
    *("TransportError", "TimeoutException", "ClientConnectionError", "ServerTimeoutError", "Timeout"),
    *("ConnectTimeoutError", "ReadTimeoutError", "NewConnectionError", "ProtocolError", "HTTPClientError"),
    *("IncompleteRead", "ClientPayloadError", "ChunkedEncodingError"),  # cut off in the middle of an answer
}
OURS = {"UnsupportedProtocol", "LocalProtocolError"}  # subclasses of those above, but our own request was wrong
_STATUS = re.compile(r"HTTP_(\d{3})")


class Verdict(NamedTuple):
    """What a failure says about its source."""

    fault: Fault | None = None
    retry_after: float | None = None


def verdict(error: BaseException) -> Verdict:
    """The verdict on an attempt that raised."""
    for cause in _causes(error):
        found = _of_one(cause)
        if found.fault is not None:
            if isinstance(error, Retry) and error.after is not None and found.fault == "source":
                return Verdict("source", max(error.after, found.retry_after or 0.0) if _limited(cause, error) else None)
            return found
    return Verdict()


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(WRAPPED):
        if seen is None:
            return
        yield seen
        if isinstance(seen, BaseExceptionGroup):  # of a task group: what went wrong first
            seen = seen.exceptions[0]
        else:
            seen = seen.__cause__


def _of_one(error: BaseException) -> Verdict:
    if isinstance(error, SourceError):
        return Verdict("source", error.retry_after)
    if isinstance(error, (Permanent, Retry)):
        return Verdict(_by_code(str(error.code)))
    # The code of an exit is no status.
    status = None if isinstance(error, SystemExit) else _status(error)
    if status is not None:
        return Verdict(_by_status(status), retry_after(error))
    names = {cls.__name__ for cls in type(error).__mro__}
    return Verdict("source" if names & CLASSES and not names & OURS else None)


def _limited(cause: BaseException, error: Retry) -> bool:
    """Whether the delay that the handler asks for is one that the source asked for."""
    return _status(cause) in (429, 503) or error.code in ("HTTP_429", "HTTP_503", "RATE_LIMITED")


def _by_code(code: str) -> Fault | None:
    if match := _STATUS.fullmatch(code):
        return _by_status(int(match[1]))
    return "source" if code in BROKEN else "refusal" if code in REFUSALS else None


def _by_status(status: int) -> Fault | None:
    if status >= 500 or status in (408, 429):
        return "source"
    return "refusal" if status in (403, 451) else None


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    for holder in (error, response):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


def retry_after(error: Any) -> float | None:
    """The Retry-After header in seconds. If it is a date, it is compared with the Date header of the answer."""
    for holder in (getattr(error, "response", None), error):
        headers: Any = getattr(holder, "headers", None)
        if headers is None or not hasattr(headers, "get"):
            continue
        value = _header(headers, "Retry-After")
        if value is None:
            continue
        try:
            if value.strip().isdigit():
                delay = float(value)
            else:
                told = _header(headers, "Date")
                now = parsedate_to_datetime(told).timestamp() if told else time.time()
                delay = parsedate_to_datetime(value).timestamp() - now
        except Exception:  # a server may send any text; a bad one counts as no header
            return None
        return min(max(delay, 0.0), LONGEST_RETRY_AFTER) or None
    return None


def _header(headers: Mapping[str, Any], name: str) -> str | None:
    value = headers.get(name)
    value = headers.get(name.lower()) if value is None else value
    return None if value is None else str(value)
