"""The measurements of `rowlock bench`: the same steps through Rowlock and through bare SQL, round by round."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from rowlock.app import Rowlock
from rowlock.cli.run.bench.scratch import scratch_database

PINGS = 100


async def measure(url: str, names: Iterable[str], jobs: int, rounds: int) -> dict[str, Any]:
    """Jobs per second of Rowlock and of bare SQL for each named measure, and the time until a job is picked up."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    pickups: list[float] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        async with scratch_database(url) as (scratch, raw):
            rowlock = _Rowlock(scratch)
            await rowlock.app.migrate()
            async with rowlock.app:
                for name in names:
                    count = jobs if name != "single" else max(50, jobs // 40)
                    pair = [(await getattr(it, name)(count)) for it in (rowlock, raw)]
                    samples[name].append((count / pair[0], count / pair[1]))
                pickups += await rowlock.pickup(PINGS)
    pickups.sort()
    found: dict[str, Any] = {name: _summary(pairs) for name, pairs in samples.items()}
    p99 = pickups[int(len(pickups) * 0.99)]
    return found | {"pickup_ms": {"p50": statistics.median(pickups) * 1000, "p99": p99 * 1000}, "rounds": rounds}


def _summary(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    ours, bare = zip(*pairs, strict=True)
    ratios = [one / other for one, other in pairs]
    return {
        "rowlock": statistics.median(ours),
        "raw": statistics.median(bare),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


class _Rowlock:
    """The measures through the public API."""

    def __init__(self, url: str) -> None:
        self.app, self.done, self.seen = Rowlock(url), 0, list[float]()

        @self.app.task("bench")
        async def noop(n: float = 0) -> None:
            self.done += 1
            if n:
                self.seen.append(time.perf_counter() - n)

        self.task = noop

    async def single(self, jobs: int) -> float:
        """Seconds to enqueue the jobs one after the other."""
        began = time.perf_counter()
        for _ in range(jobs):
            await self.task.enqueue()
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        """Seconds to enqueue the jobs by one call."""
        began = time.perf_counter()
        await self.task.enqueue_many([{"n": 0}] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        """Seconds to run and settle `jobs` jobs."""
        queued = jobs + max(50, jobs // 40)  # the jobs that `single` enqueued are still queued, and run as well
        self.done = 0
        async with self.app.worker(pool_size=100) as pool:
            began = time.perf_counter()
            await _until(lambda: self.done >= queued and pool.idle, f"{queued} jobs")
            return (time.perf_counter() - began) * jobs / queued

    async def pickup(self, jobs: int) -> list[float]:
        """Seconds from enqueue to the handler, one job at a time."""
        self.seen = []
        async with self.app.worker() as pool:
            await _until(lambda: pool.idle, "an idle worker")
            for number in range(jobs):
                await self.task.enqueue(n=time.perf_counter())
                await _until(lambda wanted=number: len(self.seen) > wanted, "a job to be picked up")
        return self.seen


async def _until(reached: Callable[..., bool], what: str, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {what} for {seconds:.0f} s")
        await asyncio.sleep(0.002)
