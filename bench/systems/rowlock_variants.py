"""Rowlock with the loads that only its own targets need: many tasks, no wake-ups, delays, keys, sources, batches, a
crowd of producers, a steady load.

Everything else is inherited from the plain adapters. The engine is read from the URL.
"""

import argparse
import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvloop

from bench.adapter import Tally, run, say
from bench.drivers import time_claims
from bench.systems.rowlock_postgres import RowlockPostgres
from rowlock import Rowlock

TASK = "job"
OWN_VERBS = ("delayed", "keyed", "produce", "steady")
OWN_FLAGS = (
    "--tasks",
    "--wakeups",
    "--seconds",
    "--sources",
    "--source",
    "--limit",
    "--pause",
    "--blocks",
    "--statements",
    "--claims",
    "--rate",
)
CLASS = "domain"
STEADY_SECONDS = 0.01  # between two groups of a steady load
CHUNK = 50_000  # jobs in one call, where all of them together would take much memory


class Variant(RowlockPostgres):
    """The plain adapter, with as many tasks as asked for, wake-ups on or off, and bulks of sources or of a batch."""

    tasks = 1
    wakeups = True
    sources: Sequence[str] = ()
    limit: int | None = None  # jobs of a source that may run at a time
    rate = 0  # starts a minute of a source; 0 is no limit
    paused = False  # once they are in
    blocks = ""  # of a bulk: p is plain, b of one batch

    def __init__(self, url: str) -> None:
        super().__init__(url)
        for number in range(1, self.tasks):
            self.app.task(f"{TASK}_{number}")(self.task.function)

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        if self.blocks:
            async with self.app.batch("bench") as batch:
                for kind in self.blocks:
                    task = self.task.using(batch=batch) if kind == "b" else self.task
                    await task.enqueue_many([{"sleep_ms": sleep_ms}] * (jobs // len(self.blocks)))
        elif self.sources:
            if self.limit is not None:
                await self.app.sources.set(CLASS, concurrency=self.limit)
            if self.rate:
                await self.app.sources.set(self.sources[0], concurrency="unlimited", rate=f"{self.rate}/min")
            await self.spread(jobs, sleep_ms)
            for source in self.sources if self.paused else ():
                await self.app.sources.pause(source)
        else:
            await super().bulk(jobs, sleep_ms)

    async def spread(self, jobs: int, sleep_ms: int) -> None:
        """As many jobs of each source, in turn."""
        names, filler = itertools.cycle(self.sources), Rowlock(self.url)
        task = filler.task(TASK, source=lambda: next(names))(self.task.function)
        bound = task if len(self.sources) > 1 else task.using(source=self.sources[0])
        for start in range(0, jobs, CHUNK):
            await bound.enqueue_many([{"sleep_ms": sleep_ms}] * min(CHUNK, jobs - start))
        await filler.close()

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        self.tally = tally
        async with self.app.worker(pool_size=concurrency, wakeups=self.wakeups):
            await stop.wait()


class SqliteVariant(Variant):
    engine = "sqlite"
    left_sql = "SELECT count(*) FROM rowlock_jobs_live"


async def delayed(it: Variant, jobs: int, seconds: float) -> None:
    """Jobs that become due at random moments within the next `seconds`; each carries the moment it is due."""
    for _ in range(jobs):
        # At least a second ahead, so that none is due before it has been committed.
        delay = random.uniform(1.0, seconds)
        due = time.monotonic_ns() + int(delay * 1e9)
        await it.task.using(delay=delay).enqueue(sent_ns=due)
    say(jobs=jobs)


async def keyed(it: Variant, jobs: int) -> None:
    """Bulk with a key for each job, made from its arguments."""
    rows = [{"sleep_ms": number} for number in range(jobs)]
    began = time.perf_counter()
    await it.task.using(key=lambda sleep_ms: f"job-{sleep_ms}").enqueue_many(rows)
    say(seconds=time.perf_counter() - began)


async def produce(it: Variant, producers: int, seconds: float) -> None:
    """Several producers for a fixed time. They begin together with those of other processes: at a line on stdin."""

    async def insert(until: float) -> int:
        count = 0
        while time.monotonic() < until:
            await it.enqueue()
            count += 1
        return count

    await asyncio.gather(*(it.enqueue() for _ in range(5 * producers)))  # connections and caches
    say(ready=True)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    counts = await asyncio.gather(*(insert(began + seconds) for _ in range(producers)))
    say(produced=sum(counts), seconds=time.monotonic() - began)


async def steady(it: Variant, rate: float, seconds: float) -> None:
    """As many jobs a second as asked for, in small groups that keep to the clock, each committed by itself."""
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        if due := int(passed * rate) - sent:
            await it.bulk(due)
            sent += due
        await asyncio.sleep(STEADY_SECONDS)
    say(produced=sent, seconds=time.monotonic() - began)


def count_statements(file: str) -> None:
    """Keep the numbers of statements and of transactions that SQLite has begun in a file; a lone statement is one, too.
    PostgreSQL counts its own."""
    import apsw  # here, because a worker on PostgreSQL does not load it, and its memory is measured

    slot, statements, transactions = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644), 0, 0

    def begun(event: dict[str, Any]) -> None:
        nonlocal statements, transactions
        statements += 1
        transactions += not event["connection"].in_transaction
        os.pwrite(slot, f"{statements} {transactions}".encode(), 0)

    apsw.connection_hooks.append(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, begun))


async def own(variant: type[Variant], options: argparse.Namespace) -> None:
    it = variant(options.url)
    await it.open(options.producers)
    try:
        match options.verb:
            case "delayed":
                await delayed(it, options.jobs, options.seconds)
            case "keyed":
                await keyed(it, options.jobs)
            case "produce":
                await produce(it, options.producers, options.seconds)
            case "steady":
                await steady(it, options.rate, options.seconds)
    finally:
        await it.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rowlock", allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("--url", default="")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--wakeups", type=int, default=1)
    parser.add_argument("--sources", type=int, default=0)
    parser.add_argument("--source", default="")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--pause", type=int, default=0)
    parser.add_argument("--blocks", default="")
    parser.add_argument("--statements", default="")
    parser.add_argument("--claims", default="")
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options, _ = parser.parse_known_args()
    variant = SqliteVariant if options.url.startswith("sqlite:") else Variant
    variant.tasks, variant.wakeups = options.tasks, bool(options.wakeups)
    variant.sources = [options.source] if options.source else [f"{CLASS}:{n}" for n in range(options.sources)]
    variant.limit, variant.paused, variant.blocks = options.limit, bool(options.pause), options.blocks
    variant.rate = options.rate
    if options.statements:
        count_statements(options.statements)
    with time_claims(Path(options.claims)) if options.claims else nullcontext():
        if options.verb in OWN_VERBS:
            uvloop.run(own(variant, options))
        else:
            run(variant, without(sys.argv[1:], *OWN_FLAGS))


def without(arguments: list[str], *flags: str) -> list[str]:
    """The arguments that the common program knows."""
    kept, rest = [], iter(arguments)
    for argument in rest:
        if argument in flags:
            next(rest, None)
        else:
            kept.append(argument)
    return kept


if __name__ == "__main__":
    main()
