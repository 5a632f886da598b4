"""How fast jobs go through the Redis bridge and back, beside a bare loop of XADD and XREADGROUP in the same run.

    python -m bench.bridge [--jobs 10000] [--rounds 5] [--postgres]

The worker behind Redis is a process that answers each request with a result and does nothing else. Jobs are enqueued
and the bridge is started before the clock starts; it stops when the last job has succeeded. The bridge runs in the
event loop of `rowlock bridge`. A round takes a second and says little alone: both take turns, and the medians count.
Rates depend on what else the machine does; the processor time that each process used depends on it less. Needs the
packages of the extra `test` (Valkey).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.usage import cpu_seconds

GOAL, SHARE = 2_000, 0.3
WORKER = """
import sys, redis
url, prefix = sys.argv[1:]
client = redis.Redis.from_url(url, decode_responses=True)
key = prefix + "job.requests"
client.xgroup_create(key, "workers", id="0", mkstream=True)
print("ready", flush=True)
while True:
    answer = client.xreadgroup("workers", "w", {key: ">"}, count=500, block=1000)
    if answer:
        pipe = client.pipeline(transaction=False)
        for entry, fields in answer[0][1]:
            pipe.xadd(prefix + "job.results", {"jobId": fields["jobId"], "status": "SUCCEEDED"})
        pipe.xack(key, "workers", *[entry for entry, _ in answer[0][1]])
        pipe.execute()
"""


class Run(NamedTuple):
    """How fast it went, and what each process used."""

    rate: float  # messages per second
    cpu: dict[str, float]  # milliseconds of processor time for each 1,000 messages, by process

    @property
    def total(self) -> float:
        return sum(self.cpu.values())


class Used:
    """The processor time of processes, from one moment on."""

    def __init__(self, **pids: int | None) -> None:
        self._pids = {name: pid for name, pid in pids.items() if pid is not None}
        self._began = time.perf_counter()
        self._before = {name: self._now(name) for name in self._pids}

    def _now(self, name: str) -> float:
        pid = self._pids[name]
        return time.process_time() if pid == os.getpid() else cpu_seconds(pid)

    def run(self, number: int) -> Run:
        rate = number / (time.perf_counter() - self._began)
        return Run(rate, {name: (self._now(name) - cpu) * 1e6 / number for name, cpu in self._before.items()})


def start_worker(url: str, prefix: str) -> subprocess.Popen[str]:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url, prefix], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def bare(server: Any, number: int) -> Run:
    """Messages through Redis and back with no database."""
    client, prefix = server.client(), "bare:"
    client.xgroup_create(prefix + "job.results", "reader", id="0", mkstream=True)
    worker = start_worker(server.url, prefix)
    try:
        used, sent, read = Used(loop=os.getpid(), worker=worker.pid, redis=server.pid), 0, 0
        while read < number:
            if sent < number:
                pipe = client.pipeline(transaction=False)
                for n in range(sent, min(sent + 500, number)):
                    pipe.xadd(prefix + "job.requests", {"jobId": str(n), "jobType": "trivial", "n": n})
                sent += len(pipe.execute())
            block = None if sent < number else 1000
            answer = client.xreadgroup("reader", "r", {prefix + "job.results": ">"}, count=500, block=block)
            if answer:
                client.xack(prefix + "job.results", "reader", *[entry for entry, _ in answer[0][1]])
                read += len(answer[0][1])
        return used.run(number)
    finally:
        worker.kill()
        worker.wait()


async def bridged(server: Any, database: str, number: int, postgres: int | None) -> Run:
    """Jobs through the bridge and back."""
    from rowlock import Rowlock
    from rowlock.core.config import load_settings
    from rowlock.core.states import State
    from rowlock.store.read import search
    from rowlock.store.read.filter import JobFilter

    flags = {"database": database, "redis.url": server.url, "redis.prefix": "bench:", "redis.unread": 5_000}
    app = Rowlock(settings=load_settings(env={}, flags=flags))

    @app.task("trivial", runs_on="redis", request={"n": "args.n"})
    async def trivial(n: int) -> None: ...

    await app.migrate()
    async with app:
        await trivial.enqueue_many([{"n": n} for n in range(number)])
        store, live = await app.store(), JobFilter(states=(State.QUEUED, State.RUNNING, State.RETRYABLE))
        worker = start_worker(server.url, "bench:")
        try:
            async with app.bridge():
                # From its start on, as the bare loop: before, it makes partitions of a new database.
                used = Used(bridge=os.getpid(), worker=worker.pid, redis=server.pid, postgres=postgres)
                while await store.run(search.newest_ids(live, 1)):
                    await asyncio.sleep(0.05)
                found = used.run(number)
        finally:
            worker.kill()
            worker.wait()
        done = len(await store.run(search.newest_ids(JobFilter(states=(State.SUCCEEDED,)), number + 1)))
        assert done == number, f"{done} of {number} succeeded"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--postgres", action="store_true", help="a new PostgreSQL server, started for this run")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    rounds = list(turns(given.jobs, given.rounds, given.postgres))
    raw, run = (sorted(runs, key=lambda one: one.rate)[len(runs) // 2] for runs in zip(*rounds, strict=True))
    shares = [ours.rate / theirs.rate for theirs, ours in rounds]
    share = statistics.median(shares)
    print(f"bare XADD and XREADGROUP   {raw.rate:8,.0f} messages/s; {_shown(raw)}")
    print(f"through the bridge         {run.rate:8,.0f} jobs/s; {_shown(run)}")
    print(f"of the bare loop           {share:8.2f} ({min(shares):.2f} to {max(shares):.2f}, {len(shares)} rounds)")
    print(f"goals                      {GOAL:8,} jobs/s, {SHARE} of the bare loop; load {os.getloadavg()[0]:.1f}")
    return 0 if run.rate >= GOAL and share >= SHARE else 1


def turns(jobs: int, rounds: int, postgres: bool) -> Iterator[tuple[Run, Run]]:
    """The bare loop and the bridge in turns, each round with a Redis and a database of its own."""
    from bench.server import start_server
    from rowlock.cli.kit.target import run_async
    from support.servers.redis import RedisServer

    with ExitStack() as stack:
        server = stack.enter_context(start_server()) if postgres else None
        for number in range(rounds):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = server.create_database(f"jobs{number}") if server else f"sqlite:///{folder}/jobs.db"
            redis = RedisServer(folder).start()
            try:
                raw = bare(redis, jobs)
                yield raw, run_async(bridged(redis, database, jobs, server.pid if server else None))
            finally:
                redis.stop()


def _shown(run: Run) -> str:
    parts = ", ".join(f"{name} {used:.0f}" for name, used in run.cpu.items())
    return f"processor ms for each 1,000: {run.total:.0f} ({parts})"


if __name__ == "__main__":
    sys.exit(main())
