"""One worker process of the race tests: `python -m support.race_worker`.

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

from rowlock.work.lifecycle import serve, signals
from rowlock.work.pool import WorkerPool
from support.race_tasks import app


def collect_for_ever() -> None:
    while True:
        gc.collect()
        time.sleep(0.005)


async def main() -> None:
    """What `app.run_worker()` does, with the pool in hand for its counters."""
    pool = WorkerPool(app)
    try:
        with signals() as stopper:
            await serve(pool, stopper)
    finally:
        counters = {"stale_refused": pool.stale_refused, "reclaimed": pool.reclaimed, "left": len(pool.running)}
        with open(os.environ["RACE_COUNTERS"], "w") as file:
            json.dump(counters, file)


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    if os.environ.get("RACE_GC"):
        threading.Thread(target=collect_for_ever, daemon=True).start()
    asyncio.run(main())
