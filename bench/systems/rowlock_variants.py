"""Rowlock with the loads that only its own targets need: many tasks, no wake-ups, delays, keys, a crowd of producers.

Everything else is inherited from the plain adapters. The engine is read from the URL.
"""

import argparse
import asyncio
import inspect
import random
import sys
import time

import uvloop

from bench.adapter import Tally, run, say
from bench.systems.rowlock_postgres import RowlockPostgres

TASK = "job"
OWN_VERBS = ("delayed", "keyed", "produce")


class Variant(RowlockPostgres):
    """The plain adapter, with as many tasks as asked for and wake-ups on or off."""

    tasks = 1
    wakeups = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        for number in range(1, self.tasks):
            self.app.task(f"{TASK}_{number}")(self.task.function)

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
    """Bulk with a unique key for each job, once the API has keys."""
    if "key" not in inspect.signature(it.task.using).parameters:
        say(missing="not yet: using() has no key")
        return
    say(missing="not yet: using(key=…) is there, and this verb must be taught how enqueue_many takes keys")


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
    finally:
        await it.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rowlock", allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("--url", default="")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--wakeups", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options, _ = parser.parse_known_args()
    variant = SqliteVariant if options.url.startswith("sqlite:") else Variant
    variant.tasks, variant.wakeups = options.tasks, bool(options.wakeups)
    if options.verb in OWN_VERBS:
        uvloop.run(own(variant, options))
    else:
        run(variant, without(sys.argv[1:], "--tasks", "--wakeups", "--seconds"))


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
