"""One worker process of the race tests: `python -m support.races.worker`.

Its settings are ROWLOCK_… variables. When it stops it writes its counters to the file RACE_COUNTERS.
"""

import asyncio
import gc
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

from rowlock import Context
from rowlock.worker.attempt import attempt
from rowlock.worker.lifecycle import serve, signals
from rowlock.worker.pool import WorkerPool
from support.races.disk import Disk
from support.races.tasks import app, work


def collect_for_ever() -> None:
    while True:
        gc.collect()
        time.sleep(0.005)


def hide_a_task() -> None:
    """A task that no child process can import."""

    @app.task("hidden")
    async def hidden(ctx: Context, ms: int = 0) -> int:
        value: int = await work.function(ctx, ms)
        return value


async def main(pool: WorkerPool) -> None:
    """What `app.run_worker()` does, with the pool in hand for its counters."""
    with signals() as stopper:
        await serve(pool, stopper)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if os.environ.get("RACE_GC"):
        threading.Thread(target=collect_for_ever, daemon=True).start()
    if seconds := os.environ.get("RACE_GIVES_UP_AFTER"):
        attempt.SECOND_CANCEL_SECONDS, attempt.GIVE_UP_SECONDS = float(seconds) / 2, float(seconds)
    if full := os.environ.get("RACE_DISK"):
        small_disk = Disk(Path(full))
    hide_a_task()
    pool = WorkerPool(app)
    try:
        asyncio.run(main(pool))
    finally:
        counters = {"stale_refused": pool.stale_refused, "reclaimed": pool.reclaimed, "left": len(pool.running)}
        Path(os.environ["RACE_COUNTERS"]).write_text(json.dumps(counters))
