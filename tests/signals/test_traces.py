"""Traces: an enqueue and its attempts as spans of OpenTelemetry, from one process to the next."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from rowlock import ConfigError, Finished, InvalidArguments, Rowlock, fixed
from rowlock.core.config import load_settings
from rowlock.signals.traces import Traces
from support.rigs.stores import ENGINES
from support.tasks import traced as traced_tasks
from support.tasks.contract import TESTS, WAIT, fetch, working

CANARY = "c4n4ry-5b2c"
EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def _provider() -> None:
    """A process has one provider, which cannot be replaced."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


def opened(url: str, **traces: bool) -> Rowlock:
    flags = {"database": url, "traces.enabled": True} | {f"traces.{name}": value for name, value in traces.items()}
    return Rowlock(settings=load_settings(env={}, flags=flags))


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[Rowlock]:
    async with opened(app_url) as started:
        yield started


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return sorted(
        (span for span in spans.get_finished_spans() if span.name == name), key=lambda span: span.start_time or 0
    )


async def finished(*jobs: Any) -> None:
    await asyncio.gather(*[job.wait(timeout=WAIT) for job in jobs], return_exceptions=True)


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_first_attempt_is_a_child_of_the_producers_span_and_later_ones_are_linked_roots(
    app: Rowlock, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("shop")

    @app.task("shop.work", queue="default", max_attempts=3, backoff=fixed(0.01))
    async def work(secret: str) -> None:
        with tracer.start_as_current_span("inside"):
            raise RuntimeError(f"GET https://a.example/?q={CANARY}")

    with tracer.start_as_current_span("request") as request:
        job = await work.enqueue(secret=CANARY)
    async with working(app):
        await finished(job)
    (send,) = named(spans, "send default")
    first, second, third = named(spans, "process default")
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    assert (send.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert first.parent is not None
    assert first.parent.span_id == send.context.span_id
    assert first.context.trace_id == send.context.trace_id
    assert not first.links
    for later in (second, third):
        assert later.parent is None
        assert later.context.trace_id != send.context.trace_id
        assert [link.context.span_id for link in later.links] == [send.context.span_id]
    assert len({one.context.trace_id for one in (send, second, third)}) == 3
    for inside, around in zip(named(spans, "inside"), (first, second, third), strict=True):
        assert inside.parent is not None
        assert inside.parent.span_id == around.context.span_id
    assert third.attributes is not None
    assert (
        dict(third.attributes).items()
        >= {
            "messaging.system": "rowlock",
            "messaging.operation.name": "process",
            "messaging.destination.name": "default",
            "messaging.message.id": job.id,
            "rowlock.task": "shop.work",
            "rowlock.attempt": 3,
            "error.type": "RuntimeError",
        }.items()
    )
    assert third.status.status_code is StatusCode.ERROR
    own = [json.loads(span.to_json()) for span in (send, first, second, third)]
    assert "https://a.example/" in json.dumps(own)
    assert CANARY not in json.dumps(own)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_follow_up_belongs_to_the_trace_of_the_job_that_it_follows(
    app: Rowlock, spans: InMemorySpanExporter
) -> None:
    done = asyncio.Event()

    @app.task("after")
    async def after(finished: Finished) -> None:
        done.set()

    @app.task(on_success=after)
    async def work() -> None: ...

    async with working(app):
        await work.enqueue()
        await asyncio.wait_for(done.wait(), WAIT)
    first, second = named(spans, "process default")
    assert second.parent is not None
    assert second.parent.span_id == first.context.span_id


@pytest.mark.parametrize("engine", ENGINES)
async def test_jobs_of_one_bulk_share_one_span_and_a_refused_enqueue_is_an_error(
    app: Rowlock, spans: InMemorySpanExporter
) -> None:
    @app.task
    async def work(n: int) -> None: ...

    await work.enqueue_many([{"n": 1}, {"n": 2}])
    (send,) = named(spans, "send default")
    assert send.attributes is not None
    assert send.attributes["messaging.batch.message_count"] == 2
    with pytest.raises(InvalidArguments, match="traceparent"):
        await work.using(traceparent="not one").enqueue(n=1)
    given = f"00-{7:032x}-{9:016x}-01"
    await work.using(traceparent=given).enqueue(n=1)
    stored = await fetch(app, "SELECT traceparent FROM {t}jobs_live ORDER BY id")
    assert stored[0] == stored[1]
    assert stored[2] == (given,), "the caller's own stays"


CHILD = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rowlock import Rowlock
from rowlock.core.config import load_settings

provider, spans = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
app = Rowlock(settings=load_settings(env={}, flags={"database": sys.argv[1], "traces.enabled": True}))

@app.task("work")
async def work() -> None: ...

async def main() -> None:
    async with app, app.worker():
        await (await app.job(sys.argv[2])).wait(timeout=30)

asyncio.run(main())
print(json.dumps([[span.name, f"{span.context.trace_id:032x}", span.parent and f"{span.parent.span_id:016x}"]
                  for span in spans.get_finished_spans()]))
"""


async def test_a_trace_goes_on_in_another_process(app: Rowlock, app_url: str, spans: InMemorySpanExporter) -> None:
    @app.task("work")
    async def work() -> None: ...

    job = await work.enqueue()
    (send,) = named(spans, "send default")
    command = [sys.executable, "-c", CHILD, app_url, job.id]
    done = await asyncio.to_thread(subprocess.run, command, cwd=TESTS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ((name, trace_id, parent),) = json.loads(done.stdout)
    assert name == "process default"
    assert trace_id == f"{send.context.trace_id:032x}"
    assert parent == f"{send.context.span_id:016x}"


async def test_a_child_process_runs_in_the_span_of_its_attempt(app_url: str, spans: InMemorySpanExporter) -> None:
    traced_tasks.app.configure(opened(app_url).settings)
    async with traced_tasks.app as app, working(app):
        found = await (await traced_tasks.where.enqueue()).wait(timeout=40)
    (process,) = named(spans, "process default")
    assert found == f"{process.context.span_id:016x}"


async def test_claims_and_settles_have_spans_only_when_asked_for(app_url: str, spans: InMemorySpanExporter) -> None:
    for claims in (False, True):
        spans.clear()
        async with opened(app_url, claims=claims) as app:

            @app.task
            async def work() -> None: ...

            async with working(app):
                await finished(*await work.enqueue_many([{}] * 3))
        claimed, settled = named(spans, "claim"), named(spans, "settle")
        assert bool(claimed) is bool(settled) is claims
    counts = [
        sum(dict(span.attributes or {})["messaging.batch.message_count"] for span in each)
        for each in (claimed, settled)
    ]
    assert counts == [3, 3]
    assert all(
        (span.end_time or 0) >= (span.start_time or 0) > 0 and span.parent is None for span in (*claimed, *settled)
    )


@pytest.mark.parametrize("engine", ENGINES)
async def test_without_the_setting_nothing_is_stored_and_no_span_is_made(
    app_url: str, spans: InMemorySpanExporter
) -> None:
    async with Rowlock(app_url) as app:

        @app.task
        async def work() -> None: ...

        with trace.get_tracer("shop").start_as_current_span("request"):
            job = await work.enqueue()
        assert await fetch(app, "SELECT traceparent FROM {t}jobs_live") == [(None,)]
        async with working(app):
            await finished(job)
    assert [span.name for span in spans.get_finished_spans()] == ["request"]


async def test_a_span_processor_that_raises_costs_no_job(app: Rowlock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no room for spans")

    @app.task
    async def work(n: int) -> int:
        return n

    for step, name in enumerate(("ended", "started")):
        monkeypatch.setattr(Traces, name, broken)
        async with working(app, pool_size=1):
            assert await (await work.enqueue(n=step)).wait(timeout=WAIT) == step


def test_a_missing_library_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rowlock.signals.traces", None)
    with pytest.raises(ConfigError, match=r"rowlock\[otel\]"):
        _ = opened("sqlite:///unused.db").traces
