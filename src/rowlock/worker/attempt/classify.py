"""Classifies what a handler raised: the one place that turns an exception into the `AttemptEnd` to store.

It also decides whether the source or the handler is to blame. HTTP libraries are never imported; their errors are
recognised by shape: a status, a response with headers, a class named after timeouts or broken connections. The chain
of causes (`raise MyError from error`) is searched as well.
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
MAX_CAUSES = 5  # how far to follow an exception's chain of causes
REFUSAL_CODES = {"ROBOTS", "CAPTCHA", "BLOCKED", "FORBIDDEN"}
SOURCE_CODES = {"TIMEOUT", "CONNECTION", "CONNECTION_ERROR", "SOURCE_ERROR", "RATE_LIMITED"}
# Class names of network errors in the standard library, httpx, aiohttp, requests, urllib3 and botocore.
NETWORK_ERRORS = {
    *("TimeoutError", "ConnectionError", "gaierror", "herror", "SSLError", "URLError"),
    *("TransportError", "TimeoutException", "ClientConnectionError", "ServerTimeoutError", "Timeout"),
    *("ConnectTimeoutError", "ReadTimeoutError", "NewConnectionError", "ProtocolError", "HTTPClientError"),
    *("IncompleteRead", "ClientPayloadError", "ChunkedEncodingError"),  # cut off in the middle of a response
}
BAD_REQUESTS = {"UnsupportedProtocol", "LocalProtocolError"}  # subclasses of network errors for faults of the caller
_STATUS = re.compile(r"HTTP_(\d{3})")
log = logging.getLogger("rowlock.worker")
Rules = Mapping[type[BaseException], FailureRule]
DELIBERATE = (Permanent, Retry, SourceError, Snooze)  # a handler raises these to choose what follows; gravest first
MAX_GROUP = 10_000  # members read of one exception group
UNKNOWN_SECONDS = 30.0  # how long to release a job whose task this worker has not registered


class Verdict(NamedTuple):
    """What a failure says about its source."""

    fault: Fault | None = None
    retry_after: float | None = None


def verdict(error: BaseException) -> Verdict:
    for cause in _causes(error):
        found = _verdict_on_one(cause)
        if found.fault is not None:
            if isinstance(error, Retry) and error.after is not None and found.fault == "source":
                limited = _rate_limited(cause, error)
                return Verdict("source", max(error.after, found.retry_after or 0.0) if limited else None)
            return found
    return Verdict()


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if seen is None:
            return
        yield seen
        if isinstance(seen, BaseExceptionGroup):  # a task group lists its first failure first
            seen = seen.exceptions[0]
        else:
            seen = seen.__cause__


def _verdict_on_one(error: BaseException) -> Verdict:
    if isinstance(error, SourceError):
        return Verdict("source", error.retry_after)
    if isinstance(error, (Permanent, Retry)):
        return Verdict(_by_code(str(error.code)))
    status = None if isinstance(error, SystemExit) else _status(error)  # its `code` is an exit code
    if status is not None:
        return Verdict(_by_status(status), retry_after(error))
    names = {cls.__name__ for cls in type(error).__mro__}
    return Verdict("source" if names & NETWORK_ERRORS and not names & BAD_REQUESTS else None)


def _rate_limited(cause: BaseException, error: Retry) -> bool:
    """Whether the handler's delay passes on a rate limit of the source."""
    return _status(cause) in (429, 503) or error.code in ("HTTP_429", "HTTP_503", "RATE_LIMITED")


def _by_code(code: str) -> Fault | None:
    if match := _STATUS.fullmatch(code):
        return _by_status(int(match[1]))
    return "source" if code in SOURCE_CODES else "refusal" if code in REFUSAL_CODES else None


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
    """The Retry-After header in seconds. A date is measured from the response's own Date header, if it has one."""
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
                date = _header(headers, "Date")
                now = parsedate_to_datetime(date).timestamp() if date else time.time()
                delay = parsedate_to_datetime(value).timestamp() - now
        except Exception:  # a server may send any text; ignore a header that cannot be read
            return None
        return min(max(delay, 0.0), LONGEST_RETRY_AFTER) or None
    return None


def _header(headers: Mapping[str, Any], name: str) -> str | None:
    value = headers.get(name)
    value = headers.get(name.lower()) if value is None else value
    return None if value is None else str(value)


class Overran(Exception):
    """The attempt exceeded its timeout."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"timed out after {timeout:g} s")
        self.timeout = timeout


class NotRegistered(Exception):
    """This worker has not registered the job's task. (A TaskNotFound raised by the handler is an ordinary failure.)"""


class ArgumentsMisfit(InvalidArguments):
    """The job's stored arguments do not fit its task."""


class InvalidResult(InvalidArguments):
    """What the handler returned cannot be stored."""


def end_of(app: Client, attempt: LiveAttempt, error: BaseException) -> AttemptEnd | None:
    """How an attempt that raised has ended; None if it has lost its lease and must not settle. Never raises: exceptions
    and error hooks are user code, and an attempt without an end would hold its job and its slot for ever."""
    job = attempt.job
    try:
        cause, others = _gravest(error, job)
        if isinstance(cause, asyncio.CancelledError):
            return stopped(attempt)
        if attempt.reason == "lost" or _lost_own_lease(cause, job):
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
        return internal(job, "the handler's exception could not be classified", broken, error)


def _with_trace(end: Failed, error: BaseException, cause: BaseException) -> Failed:
    """Add the traceback, unless the error needs none: the handler raised it deliberately, or its arguments or result
    were invalid, and no other exception is chained to it."""
    trace = trace_of(error)
    expected = isinstance(cause, (Permanent, Retry, SourceError, ArgumentsMisfit, InvalidResult))
    return end if trace is None or (expected and len(trace) == 1) else replace(end, trace=trace)


def stopped(attempt: LiveAttempt) -> AttemptEnd | None:
    """How a cancelled attempt ends, by the reason for which it was stopped; None if its lease is lost."""
    if attempt.reason is None:
        return Failed("CANCELLED_ITSELF", "the handler raised CancelledError, but its job was not cancelled")
    return None if attempt.reason == "lost" else attempt.end(attempt.reason)


def _call_hooks(app: Client, attempt: LiveAttempt, error: BaseException) -> None:
    for hook in app.error_hooks:
        try:
            answer: Any = hook(attempt.ctx or Context(app, attempt.job), error)
            if inspect.iscoroutine(answer):
                answer.close()
                log.error("an error hook must be a plain function: the coroutine that %r returned is not awaited", hook)
        except BaseException as broken:
            log.error("an error hook raised:\n%s", traced(broken))


def _classify(
    job: Claimed, rules: Rules, raised: BaseException, cause: BaseException, others: tuple[BaseException, ...]
) -> AttemptEnd:
    """The end for `cause`. May raise: reading an attribute of an exception runs user code."""
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
    """An ordinary failure, for an attempt that could not be classified or decided. The tracebacks in the log show whose
    code broke."""
    with suppress(BaseException):  # a logging filter is user code
        also = "" if raised is None else f"\nThe attempt had raised:\n{traced(raised)}"
        about = job_fields(job)
        log.error("Job %s (%s): %s:\n%s%s", job.id, job.task, what, traced(broken), also, extra=about)
    return Failed("INTERNAL", clean(f"{what}: {kind(broken)}: {said(broken)}"))


def _by_rule(rules: Rules, raised: BaseException, cause: BaseException) -> dict[str, Any]:
    """The task's rule for the cause's class or its nearest base class, else for the group that the cause was in."""
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


def _gravest(error: BaseException, job: Claimed) -> tuple[BaseException, tuple[BaseException, ...]]:
    """The exception that decides how the attempt ended, and the other members of its group. In a group (several tasks
    failed at once) the gravest of DELIBERATE decides, else the first failure."""
    if not isinstance(error, BaseExceptionGroup):
        return error, ()
    members = _members(error)
    cause = min(members, key=lambda member: _rank(member, job), default=error)
    others = (member for member in members if member is not cause and not isinstance(member, asyncio.CancelledError))
    return cause, tuple(others)


def _lost_own_lease(error: BaseException, job: Claimed) -> bool:
    """Whether the error is a LeaseLost of this attempt's lease: a handler may hold leases of other jobs as well."""
    return isinstance(error, LeaseLost) and (error.job_id, error.token) == (job.id, job.token)


def _members(group: BaseException) -> list[BaseException]:
    """The exceptions in a group and its nested groups, in order."""
    found: list[BaseException] = []
    waiting = [group]
    for _ in range(MAX_GROUP):
        if not waiting:
            break
        member = waiting.pop()
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(reversed(member.exceptions))
        else:
            found.append(member)
    return found


def _rank(member: BaseException, job: Claimed) -> int:
    if _lost_own_lease(member, job):
        return -1
    for rank, deliberate in enumerate(DELIBERATE):
        if isinstance(member, deliberate):
            return rank
    return len(DELIBERATE) + isinstance(member, asyncio.CancelledError)
