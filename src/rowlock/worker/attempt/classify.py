"""How an attempt that raised has ended, as a value that can be stored: the one place that decides it.

It also decides whether the source or the handler is to blame. HTTP libraries are recognised by the shape of their
errors, never by an import: a status, a response with headers, a class named for timeouts or broken connections. Causes
(`raise MyError from error`) are examined as well.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from rowlock.client.client import Client
from rowlock.client.context import Context
from rowlock.core.error_text import CODE_LIMIT, clean, describe, kind, said, traced
from rowlock.core.errors import InvalidArguments, LeaseLost, Permanent, Retry, Snooze, SourceError, seconds
from rowlock.core.job import Claimed
from rowlock.core.options import FailureRule
from rowlock.core.outcome import AttemptEnd, Failed, Released, TimedOut
from rowlock.core.policy import Backoff
from rowlock.core.sources.admission import Fault
from rowlock.core.tracebacks import told_of, trace_of
from rowlock.signals.logs import job_fields
from rowlock.worker.attempt.attempt import LiveAttempt

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
log = logging.getLogger("rowlock.worker")
Rules = Mapping[type[BaseException], FailureRule]
SPOKEN = (Permanent, Retry, SourceError, Snooze)  # exceptions that say what happens next, the gravest first
MOST = 10_000  # exceptions of one group that are read
UNKNOWN_SECONDS = 30.0  # until a job is claimable again whose task the claiming worker has not registered


class Verdict(NamedTuple):
    """What a failure says about its source."""

    fault: Fault | None = None
    retry_after: float | None = None


def verdict(error: BaseException) -> Verdict:
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
    # The code of an exit isn't an HTTP status.
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


class Overran(Exception):
    """The attempt outran its timeout."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"timed out after {timeout:g} s")
        self.timeout = timeout


class NotRegistered(Exception):
    """This worker has not registered the job's own task. A TaskNotFound that the handler raised is an ordinary
    failure."""


class ArgumentsMisfit(InvalidArguments):
    """The job's stored arguments do not fit its task."""


class InvalidResult(InvalidArguments):
    """What the handler returned cannot be stored."""


def end_of(app: Client, attempt: LiveAttempt, error: BaseException) -> AttemptEnd | None:
    """How an attempt that raised has ended; None when it has lost its lease and so has nothing to settle. Never raises:
    exceptions and error hooks are user code, and an attempt without an end would keep its job and its slot."""
    job = attempt.job
    try:
        cause, others = _picked(error, job)
        if isinstance(cause, asyncio.CancelledError):
            return stopped(attempt)
        if attempt.reason == "lost" or _speaks_of(cause, job):
            attempt.reason = "lost"
            return None
        if not isinstance(cause, (Snooze, NotRegistered)):
            _call_hooks(app, attempt, cause)
        task = app.registry.all().get(job.task)
        end = _classify(job, task.options.rules if task else {}, error, cause, others)
        if not isinstance(end, Failed):
            return end
        end = _with_trace(end, error, cause)
        return replace(end, told=told_of(error, job.args)) if app.settings.sentry.wanted else end
    except BaseException as broken:
        return internal(job, "what the attempt raised could not be understood", broken, error)


def _with_trace(end: Failed, error: BaseException, cause: BaseException) -> Failed:
    """With the traceback; but without one where the handler raised Permanent, Retry or SourceError on purpose, and of
    no other exception."""
    trace = trace_of(error)
    spoken = isinstance(cause, (Permanent, Retry, SourceError, ArgumentsMisfit, InvalidResult))
    return end if trace is None or (spoken and len(trace) == 1) else replace(end, trace=trace)


def stopped(attempt: LiveAttempt) -> AttemptEnd | None:
    """How an attempt ends that was cancelled, by the reason for which it was stopped; None when its lease is lost."""
    if attempt.reason is None:
        return Failed("CANCELLED_ITSELF", "the handler's own task was cancelled from inside")
    return None if attempt.reason == "lost" else attempt.end(attempt.reason)


def _call_hooks(app: Client, attempt: LiveAttempt, error: BaseException) -> None:
    for hook in app.error_hooks:
        try:
            answer: Any = hook(attempt.ctx or Context(app, attempt.job), error)
            if inspect.iscoroutine(answer):
                answer.close()
                log.error("an error hook must be a plain function: what %r returned is not awaited", hook)
        except BaseException as broken:
            log.error("an error hook raised:\n%s", traced(broken))


def _classify(
    job: Claimed, rules: Rules, raised: BaseException, cause: BaseException, others: tuple[BaseException, ...]
) -> AttemptEnd:
    """How an attempt that raised has ended. May raise: reading an attribute of the exception runs user code."""
    match cause:
        case Snooze():
            return Released(seconds(cause.after, "Snooze"), describe(cause, others))
        case NotRegistered():
            return Released(UNKNOWN_SECONDS, said(cause), "stopped")
        case Overran():
            return TimedOut(cause.timeout)
        case ArgumentsMisfit():
            return Failed("INVALID_ARGUMENTS", describe(cause))
        case InvalidResult():
            return Failed("INVALID_RESULT", describe(cause), permanent=True)
    text = describe(cause, others)
    about = _about_source(cause) if job.source is not None else {}
    match cause:
        case Retry():
            after = None if cause.after is None else seconds(cause.after, "Retry(after=)")
            return Failed(_code(cause.code), text, after=after, **about)
        case Permanent():
            return Failed(_code(cause.code), text, permanent=True, **about)
    code = _code(cause.code) if isinstance(cause, SourceError) else kind(cause)
    return Failed(code, text, **_by_rule(rules, raised, cause), **about)


def internal(job: Claimed, what: str, broken: BaseException, raised: BaseException | None = None) -> Failed:
    """The end of an attempt that could not be classified or decided: an ordinary failure. The log has the tracebacks,
    which say whose code it was."""
    with suppress(BaseException):  # a logging filter is user code
        also = "" if raised is None else f"\nThe attempt had raised:\n{traced(raised)}"
        about = job_fields(job)
        log.error("Job %s (%s): %s:\n%s%s", job.id, job.task, what, traced(broken), also, extra=about)
    return Failed("INTERNAL", clean(f"{what}: {kind(broken)}: {said(broken)}"))


def _by_rule(rules: Rules, raised: BaseException, cause: BaseException) -> dict[str, Any]:
    """What the task's rules say: of the cause's class or the nearest above it; then of the group that it came in."""
    for one in (*type(cause).__mro__, *type(raised).__mro__):
        rule = rules.get(one)
        if rule == "dead":
            return {"permanent": True}
        if isinstance(rule, Backoff):
            return {"backoff": rule.to_json()}
        if rule is not None:
            return {"after": seconds(rule, "rules")}
    return {}


def _about_source(cause: BaseException) -> dict[str, Any]:
    fault, after = verdict(cause)
    return {"fault": fault, "retry_after": None if after is None else seconds(after, "retry_after")}


def _code(code: object) -> str:
    return clean(str(code), CODE_LIMIT)


def _picked(error: BaseException, job: Claimed) -> tuple[BaseException, tuple[BaseException, ...]]:
    """The exception that says how the attempt ended, and what was raised beside it. Of a group (several tasks failed at
    once) the gravest of SPOKEN counts, else the first failure."""
    if not isinstance(error, BaseExceptionGroup):
        return error, ()
    members = _members(error)
    cause = min(members, key=lambda member: _rank(member, job), default=error)
    others = (member for member in members if member is not cause and not isinstance(member, asyncio.CancelledError))
    return cause, tuple(others)


def _speaks_of(error: BaseException, job: Claimed) -> bool:
    """Whether the error is a LeaseLost of this attempt's own lease: a handler may hold leases of other jobs."""
    return isinstance(error, LeaseLost) and (error.job_id, error.token) == (job.id, job.token)


def _members(group: BaseException) -> list[BaseException]:
    """The exceptions in a group and in the groups in it, in their order."""
    found: list[BaseException] = []
    waiting = [group]
    for _ in range(MOST):
        if not waiting:
            break
        member = waiting.pop()
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(reversed(member.exceptions))
        else:
            found.append(member)
    return found


def _rank(member: BaseException, job: Claimed) -> int:
    if _speaks_of(member, job):
        return -1
    for rank, spoken in enumerate(SPOKEN):
        if isinstance(member, spoken):
            return rank
    return len(SPOKEN) + isinstance(member, asyncio.CancelledError)
