"""How an attempt that raised has ended, as a value that can be stored."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments, Permanent, Retry, Snooze, SourceError, seconds
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed, Released, TimedOut
from rowlock.core.policy import Backoff
from rowlock.work.errors import CODE_LIMIT, clean, describe, kind, said, traced
from rowlock.work.faults import verdict
from rowlock.work.groups import Picked

if TYPE_CHECKING:
    from rowlock.work.options import Rule

log = logging.getLogger("rowlock.worker")

Rules = Mapping[type[BaseException], "Rule"]
UNKNOWN_SECONDS = 30.0  # before a job of a task that this worker does not have is offered again


class Overran(Exception):
    """The attempt outran its timeout."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"timed out after {timeout:g} s")
        self.timeout = timeout


class NotRegistered(Exception):
    """This worker does not have the job's own task: one that the handler asked for is the handler's failure."""


class ArgumentsMisfit(InvalidArguments):
    """The job's stored arguments do not fit its task."""


class InvalidResult(InvalidArguments):
    """What the handler returned cannot be stored."""


def classify(job: Claimed, rules: Rules, raised: BaseException, picked: Picked) -> AttemptEnd:
    """How an attempt that raised has ended. Raises whatever the exception's own properties raise."""
    cause, others = picked
    match cause:
        case Snooze():
            return Released(seconds(cause.after, "Snooze"), describe(cause, others))
        case NotRegistered():
            return Released(UNKNOWN_SECONDS, said(cause))
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
    """What becomes of an attempt whose end we could not make out: a failure like any other. The log has the tracebacks,
    which say whose code it was."""
    with suppress(BaseException):  # a filter of the log is somebody's code, too
        also = "" if raised is None else f"\nThe attempt had raised:\n{traced(raised)}"
        log.error("Job %s (%s): %s:\n%s%s", job.id, job.task, what, traced(broken), also)
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
    """What the failure says about the job's source."""
    fault, after = verdict(cause)
    return {"fault": fault, "retry_after": None if after is None else seconds(after, "retry_after")}


def _code(code: object) -> str:
    return clean(str(code), CODE_LIMIT)
