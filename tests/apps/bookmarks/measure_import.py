"""Imports a file in a process of its own, and says what that took: `python measure_import.py DATABASE FILE`."""

import asyncio
import json
import re
import sys
import time
from pathlib import Path

from rowlock_apps.bookmarks import import_file, make_app, read_import

TICK = 0.005
IDLE = 0.5


def peak_mb() -> float:
    """The most memory that this process had. Not `ru_maxrss`, which begins with that of the parent."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


async def measure(url: str, path: str) -> dict[str, float]:
    app = make_app(url)
    await app.migrate()
    async with app:
        lags: list[float] = []

        async def tick() -> None:
            while True:
                due = time.perf_counter() + TICK
                await asyncio.sleep(TICK)
                lags.append(time.perf_counter() - due)

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(IDLE)
        idle, lags[:] = sorted(lags), []
        began, cpu_began = time.perf_counter(), time.process_time()
        import_id = await import_file(app, "ana", path)
        took = time.perf_counter() - began
        cpu = time.process_time() - cpu_began
        ticking.cancel()
        status = await read_import(app, "ana", import_id)
        jobs = await app.find_batch(import_id)
    lags.sort()
    return {
        "seconds": took,
        "cpu_seconds": cpu,
        "lag_p99": lags[int(len(lags) * 0.99)],
        "idle_lag_p99": idle[int(len(idle) * 0.99)],  # what the machine does to a loop without work
        "lag_most": lags[-1],
        "peak_mb": peak_mb(),
        "items": status.total_items,
        "jobs": jobs.total,
        "done_at_once": status.processed_items,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2]))))
