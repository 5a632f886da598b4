"""`python -m bench.counting`: what counting costs, as CPU seconds for each job drained with and without its triggers.

Rounds with and without follow each other in pairs, in one process and against one server, so that what else the machine
does falls on both. CPU and not time: on a busy machine, time says more about the neighbours.
"""

import argparse
import asyncio
import statistics
import tempfile
import time

from bench.server import start_server
from bench.usage import cpu_seconds
from rowlock import Rowlock
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.servers.postgres import PostgresDatabases

TRIGGERS = {
    "sqlite": [
        "DROP TRIGGER rowlock_jobs_finished_success",
        "DROP TRIGGER rowlock_jobs_finished_trouble_tally",
        "DROP TRIGGER rowlock_attempts_tally",
    ],
    "postgres": [
        "DROP TRIGGER jobs_finished_tallies ON rowlock.jobs_finished",
        "DROP TRIGGER attempts_tallies ON rowlock.attempts",
        "DROP TRIGGER attempts_task ON rowlock.attempts",
    ],
}


async def drained(url: str, jobs: int, counting: bool, server: int | None) -> float:
    """Drain jobs that do nothing; answers the CPU seconds of each, of this process and of the server's processes."""
    store = await open_store(url, StoreOptions(migrate=True))
    if not counting:
        for statement in TRIGGERS[store.engine]:
            await store.execute(statement)
    await store.close()
    app, done = Rowlock(url), 0

    @app.task("nothing")
    async def nothing(n: int) -> None:
        nonlocal done
        done += 1

    def spent() -> float:
        return time.process_time() + (cpu_seconds(server) if server else 0)

    async with app:
        await nothing.enqueue_many([{"n": n} for n in range(jobs)])
        async with app.worker(pool_size=100):
            before = spent()
            while done < jobs:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)  # for the last outcomes to be written
            return (spent() - before) / jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    server = start_server()
    try:
        databases = PostgresDatabases(server.url)
        for engine in ("sqlite", "postgres"):
            costs: dict[bool, list[float]] = {True: [], False: []}
            for number in range(2 * options.rounds):
                counting = (number + number // 2) % 2 == 0
                with tempfile.TemporaryDirectory() as folder:
                    url, pid = f"sqlite:///{folder}/jobs.db", None
                    if engine == "postgres":
                        url, pid = databases.create_database(f"counting_{number}"), server.pid
                    costs[counting].append(1e6 * asyncio.run(drained(url, options.jobs, counting, pid)))
                    print(f"  {engine} {'with' if counting else 'without':8} {costs[counting][-1]:8.1f} µs a job")
                    if engine == "postgres":
                        databases.drop_database(f"counting_{number}")
            kept, bare = statistics.median(costs[True]), statistics.median(costs[False])
            print(f"{engine}: {kept:.1f} µs of CPU a job with counting, {bare:.1f} without: {kept / bare - 1:+.1%}")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
