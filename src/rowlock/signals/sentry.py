"""Failed attempts as events of Sentry: what failed, where in the code, and nothing of the job's data.

Each event is built here from an allow list: the job's id, task, queue, source, attempt and outcome, the code and the
scrubbed message of the error, and frames without variables. A separate client sends it, so that no integration of the
program can add a request, a command line or local variables to it. Events are grouped by task and error code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger

from rowlock.core.argument_values import ArgumentValues
from rowlock.core.config import SentrySettings
from rowlock.core.error_text import scrub
from rowlock.core.errors import ConfigError
from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.core.states import Outcome, State
from rowlock.core.tracebacks import Frame, Raised, exceptions_of
from rowlock.signals.events import Watcher

FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST)
FLUSH_SECONDS = 2.0
BREADCRUMBS = 20  # an event carries the last jobs that became dead, at most this many


class Sentry(Watcher):
    """Sends each failed attempt of one worker; a job that turns dead leaves a breadcrumb."""

    def __init__(self, settings: SentrySettings) -> None:
        self._client = _client(settings)
        self._crumbs: deque[dict[str, Any]] = deque(maxlen=BREADCRUMBS)
        # Otherwise the logging integration of the program would send each failure a second time, by its log line.
        ignore_logger("rowlock.worker")

    def ended(self, job: Claimed, transition: Transition, seconds: float) -> None:
        if transition.outcome in FAILURES:
            self._send(job, transition)

    def reclaimed(self, lost: Sequence[tuple[Claimed, Transition]]) -> None:
        for job, transition in lost:
            self._send(job, transition)

    def stopped(self) -> None:
        self._client.flush(timeout=FLUSH_SECONDS)

    def _send(self, job: Claimed, transition: Transition) -> None:
        code = _code(job, transition)
        if transition.state is State.DEAD:
            crumb = {
                "timestamp": datetime.now(UTC).isoformat(),
                "category": "rowlock.job",
                "level": "error",
                "message": f"Job {job.id} ({job.task}) is dead: {code}",
                "data": {"job_id": job.id, "task": job.task, "attempt": job.attempt, "code": code},
            }
            self._crumbs.append(crumb)
        event = event_of(job, transition, code)
        if self._crumbs:
            event["breadcrumbs"] = {"values": list(self._crumbs)}
        self._client.capture_event(event)  # without a scope: the program's may hold a user, a request and anything else


def _client(settings: SentrySettings) -> sentry_sdk.Client:
    """A client that sends to `sentry.dsn`, or to where the program's own client sends."""
    given: dict[str, Any] = {"dsn": settings.dsn, "environment": settings.environment}
    if settings.dsn is None:
        program = sentry_sdk.get_client()
        if not program.is_active() or program.transport is None:
            raise ConfigError("sentry.enabled: call sentry_sdk.init(…) before the worker starts, or set sentry.dsn")
        given = {name: program.options.get(name) for name in ("dsn", "environment", "release", "server_name")}
        given["transport"] = program.transport
    return sentry_sdk.Client(
        **given,
        default_integrations=False,
        auto_enabling_integrations=False,
        auto_session_tracking=False,
        include_local_variables=False,
        include_source_context=False,
    )


def event_of(job: Claimed, transition: Transition, code: str) -> Any:
    """The event of one failed attempt. `code` quotes no argument."""
    raised = exceptions_of(transition.trace) if transition.trace else []
    messages = list(transition.told) or [_message(job, transition)] * max(1, len(raised))
    values = [_exception(one, text) for one, text in zip(raised, messages, strict=False)]
    tags = {"task": job.task, "queue": job.queue, "outcome": str(transition.outcome), "state": str(transition.state)}
    tags |= {"error_code": code} | ({"source": job.source} if job.source else {})
    return {
        "level": "error" if transition.state is State.DEAD else "warning",
        "logger": "rowlock.worker",
        "transaction": job.task,
        "fingerprint": ["rowlock", job.task, code],
        "exception": {"values": values or [{"type": code, "value": messages[-1]}]},
        "tags": tags,
        "contexts": {"job": {"id": job.id, "attempt": job.attempt, "worker": job.worker, "batch_id": job.batch_id}},
    }


def _code(job: Claimed, transition: Transition) -> str:
    """The error code. One that the handler chose, and that is not the name of a class, may quote an argument."""
    code = transition.error_code or str(transition.outcome)
    classes = {one.kind.rpartition(".")[2] for one in exceptions_of(transition.trace or ())}
    chosen = transition.outcome is Outcome.FAILED and code not in classes
    return ArgumentValues(job.args).hide(code) if chosen else code


def _message(job: Claimed, transition: Transition) -> str:
    """The message of an attempt that ended without an exception: a child process died, for example."""
    message = (transition.error_message or "").partition("\n")[0]
    if transition.outcome is Outcome.FAILED:  # the messages of other outcomes are Rowlock's, and quote nothing
        message = ArgumentValues(job.args).hide(message)
    return scrub(message, people=True)


def _exception(one: Raised, message: str) -> dict[str, Any]:
    module, _, kind = one.kind.rpartition(".")
    found: dict[str, Any] = {"type": kind, "value": message, "module": module or None}
    if one.frames:
        found["stacktrace"] = {"frames": [_frame(Frame(*fields)) for fields in one.frames]}
    return found


def _frame(frame: Frame) -> dict[str, Any]:
    return {
        "abs_path": frame.file,
        "filename": frame.file,
        "function": frame.function,
        "lineno": frame.line,
        "context_line": frame.code,
        "in_app": frame.own,
    }
