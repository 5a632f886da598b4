"""Spans of OpenTelemetry, by its conventions for messaging. The only module that imports opentelemetry.

An enqueue is a span `send <queue>`, and the job's row keeps its `traceparent`. The first attempt is a span
`process <queue>` below it, in the same trace. Later attempts may come hours later: each is the root of a new trace,
with a link to the span that created the job. Spans hold no arguments; exceptions have the text that the log has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from rowlock.core.job import Claimed, NewJob
from rowlock.core.option_checks import TRACEPARENT
from rowlock.core.outcome import AttemptEnd, Failed, Lost, TimedOut
from rowlock.core.tracebacks import STORED_BYTES, exceptions_of, traceback_text
from rowlock.signals.events import Watcher
from rowlock.store.engine.clock import boottime

SECOND = 1_000_000_000  # in the nanoseconds of spans
NOWHERE = Context()  # the parent context of spans that are the root of their trace


class Traces:
    """Makes the spans of enqueues and attempts with the program's tracer provider."""

    def __init__(self) -> None:
        self.tracer = trace.get_tracer("rowlock")

    @staticmethod
    def name(span: Span) -> str | None:
        """The W3C traceparent of a span; None where nobody collects spans."""
        found = span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}" if found.is_valid else None

    @contextmanager
    def sending(self, new: NewJob, count: int) -> Iterator[NewJob]:
        """A span around an enqueue; gives the options of its jobs with the span's traceparent. A traceparent that the
        caller gave stays."""
        about = _about("send", new.queue, new.task)
        if count > 1:
            about["messaging.batch.message_count"] = count
        # The exception of a refused enqueue may quote arguments: only its class is recorded.
        with self.tracer.start_as_current_span(
            f"send {new.queue}",
            kind=SpanKind.PRODUCER,
            attributes=about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield new if new.traceparent is not None else replace(new, traceparent=self.name(span))
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    def started(self, job: Claimed) -> Span:
        """Start the span of an attempt, and make it the current one of this asyncio task."""
        creator = span_context_of(job.traceparent)
        about = _about("process", job.queue, job.task)
        about |= {"messaging.message.id": job.id, "rowlock.attempt": job.attempt, "rowlock.worker": job.worker}
        parent, links = NOWHERE, list[Link]()
        if creator is not None and job.attempt == 1:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(creator), NOWHERE)
        elif creator is not None:
            links.append(Link(creator))
        span = self.tracer.start_span(
            f"process {job.queue}", context=parent, kind=SpanKind.CONSUMER, attributes=about, links=links
        )
        context.attach(trace.set_span_in_context(span))
        return span

    def ended(self, span: Span, end: AttemptEnd | None) -> None:
        """End the span of an attempt: `end` is how it ended; None if its own transaction has settled it."""
        span.set_attribute("rowlock.outcome", "Succeeded" if end is None else type(end).__name__)
        if isinstance(end, (Failed, TimedOut, Lost)):
            code = end.code if isinstance(end, Failed) else type(end).__name__
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR, code))
        if isinstance(end, Failed) and end.trace:
            last = exceptions_of(end.trace)[-1]
            text = traceback_text(end.trace, STORED_BYTES)
            about = {"exception.type": last.kind, "exception.message": last.said, "exception.stacktrace": text}
            span.add_event("exception", about)
        span.end()


class BatchSpans(Watcher):
    """A span for each claim that found jobs and each batch of outcomes, recorded afterwards. Each is its own trace."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("rowlock")

    def claimed(self, jobs: Sequence[Claimed], sent: float) -> None:
        self._span("claim", time.time_ns() - int((boottime() - sent) * SECOND), len(jobs))

    def written(self, count: int, began: float) -> None:
        self._span("settle", time.time_ns() - int((time.monotonic() - began) * SECOND), count)

    def _span(self, name: str, began: int, count: int) -> None:
        about: dict[str, Any] = {
            "messaging.system": "rowlock",
            "messaging.operation.name": name,
            "messaging.batch.message_count": count,
        }
        self._tracer.start_span(name, NOWHERE, SpanKind.CLIENT, about, start_time=began).end()


def continue_trace(traceparent: str | None) -> None:
    """In a child process: the handler's spans get the attempt's span, which the parent process started, as parent."""
    if (span := span_context_of(traceparent)) is not None:
        context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))


def span_context_of(traceparent: str | None) -> SpanContext | None:
    """The span that a traceparent names; None if it names none."""
    if traceparent is None or not TRACEPARENT.fullmatch(traceparent):
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    found = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
    return found if found.is_valid else None


def _about(operation: str, queue: str, task: str) -> dict[str, Any]:
    return {
        "messaging.system": "rowlock",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "rowlock.task": task,
    }
