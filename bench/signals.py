"""`python -m bench.signals`: what logs, metrics and counters cost, as CPU seconds for each job with and without them.

With: log lines at INFO as JSON into a file, a metrics port that is scraped once a second, the triggers that count.
Without: no line below WARNING, no port, no triggers. `--counters` keeps the triggers in both. `--tracing` also makes a
span of each attempt, with the SDK's batch processor and an exporter that throws it away.

Rounds follow each other in pairs, in one process and against one server, so that what else the machine does falls on
both. CPU and not time: on a busy machine, time says more about the neighbours.
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from bench.counting import TRIGGERS
from bench.server import start_server
from bench.usage import cpu_seconds
from rowlock import JobFields, Rowlock
from rowlock.cli.kit.logs import JsonLines
from rowlock.core.config import load_settings
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.servers.postgres import PostgresDatabases, free_port

GOAL = 0.9  # of the throughput without


async def drained(url: str, jobs: int, on: bool, server: int | None, tracing: bool, counters: bool) -> float:
    """Drain jobs that do nothing; answers the CPU seconds of each, of this process and of the server's processes."""
    store = await open_store(url, StoreOptions(migrate=True))
    if not on and not counters:
        for statement in TRIGGERS[store.engine]:
            await store.execute(statement)
    await store.close()
    port = free_port() if on else None
    flags = {"database": url, "worker.metrics_port": port, "traces.enabled": tracing and on}
    app, done = Rowlock(settings=load_settings(env={}, flags=flags)), 0

    @app.task("nothing")
    async def nothing(n: int) -> None:
        nonlocal done
        done += 1

    def spent() -> float:
        return time.process_time() + (cpu_seconds(server) if server else 0)

    async with app:
        await nothing.enqueue_many([{"n": n} for n in range(jobs)])
        async with app.worker(pool_size=100):
            before, scraped = spent(), time.monotonic()
            while done < jobs:
                await asyncio.sleep(0.05)
                if port is not None and time.monotonic() > scraped + 1:
                    scraped = time.monotonic()
                    await asyncio.to_thread(_scrape, port)
            await asyncio.sleep(0.2)  # for the last outcomes to be written
            return (spent() - before) / jobs


def _scrape(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        answer.read()


@contextmanager
def logs(on: bool, folder: str) -> Iterator[None]:
    """Lines at INFO as JSON into a file, or none below WARNING."""
    logger = logging.getLogger("rowlock")
    handler = logging.FileHandler(f"{folder}/lines.json")
    handler.setFormatter(JsonLines())
    handler.addFilter(JobFields())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if on else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def collect_spans() -> None:
    """A provider that makes spans, hands them on in batches and throws them away."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    exporter.shutdown()  # from now on it keeps nothing
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--counters", action="store_true")
    parser.add_argument("--tracing", action="store_true")
    parser.add_argument("--engines", default="sqlite,postgres")
    options = parser.parse_args()
    if options.tracing:
        collect_spans()
    server = start_server()
    try:
        databases = PostgresDatabases(server.url)
        for engine in options.engines.split(","):
            costs: dict[bool, list[float]] = {True: [], False: []}
            for number in range(2 * options.rounds):
                on = (number + number // 2) % 2 == 0
                with tempfile.TemporaryDirectory() as folder, logs(on, folder):
                    url, pid = f"sqlite:///{folder}/jobs.db", None
                    if engine == "postgres":
                        url, pid = databases.create_database(f"signals_{number}"), server.pid
                    costs[on].append(
                        1e6 * asyncio.run(drained(url, options.jobs, on, pid, options.tracing, options.counters))
                    )
                    print(f"  {engine} {'with' if on else 'without':8} {costs[on][-1]:8.1f} µs a job", flush=True)
                    if engine == "postgres":
                        databases.drop_database(f"signals_{number}")
            told, bare = statistics.median(costs[True]), statistics.median(costs[False])
            ratio = bare / told
            met = "met" if ratio >= GOAL else "MISSED"
            print(
                f"{engine}: {told:.1f} µs of CPU a job with signals, {bare:.1f} without: {ratio:.3f} × ({GOAL} {met})"
            )
    finally:
        server.stop()


if __name__ == "__main__":
    main()
