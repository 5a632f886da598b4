"""The worker pool, and the program: `python -m rowlock_apps.cronjobs` is `rowlock up` for this app."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import rowlock
from rowlock import Rowlock
from rowlock_apps.cronjobs.app import app as default_app


class WorkerPool(rowlock.WorkerPool):
    """The document's pool: `WorkerPool(config)` with the keys of `worker.yaml`; `start()`, `stop()`,
    `_poll_and_assign()`. What the config does not say, the app's own says."""

    def __init__(self, config: Mapping[str, Any] | None = None, *, app: Rowlock = default_app) -> None:
        super().__init__(app, config)
        self.pool_size = self.settings.pool_size
        self.poll_interval = self.settings.poll_interval_seconds
        self.claim_batch_size = self.settings.claim_batch_size
        self.shutdown_timeout = self.settings.shutdown_timeout_seconds


async def serve(app: Rowlock = default_app) -> None:
    """A dispatcher and a pool, until SIGTERM or SIGINT: no new executions then, and those that run may finish."""
    await app.migrate()
    async with app, app.dispatcher():
        await app.run_worker()


def main() -> None:
    """Run everything in this process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve())
