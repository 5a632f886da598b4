"""The worker pool, and the program: `python -m rowlock_apps.cronjobs` is `rowlock up` for this app."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

import rowlock
from rowlock import Rowlock, RowlockError
from rowlock_apps.cronjobs.app import app as default_app
from rowlock_apps.cronjobs.app import make_app

Database = Annotated[str | None, typer.Option(metavar="URL", help="Instead of what the config says")]


class WorkerPool(rowlock.WorkerPool):
    """The document's pool: `WorkerPool(config)` with the keys of `worker.yaml`; `start()`, `stop()`,
    `_poll_and_assign()`. Keys that it lacks come from the app's own config."""

    def __init__(self, config: Mapping[str, Any] | None = None, *, app: Rowlock = default_app) -> None:
        super().__init__(app, config)
        self.pool_size = self.settings.pool_size
        self.poll_interval = self.settings.poll_interval_seconds
        self.claim_batch_size = self.settings.claim_batch_size
        self.shutdown_timeout = self.settings.shutdown_timeout_seconds


async def serve(app: Rowlock = default_app) -> None:
    """A dispatcher and a pool. On SIGTERM or SIGINT no new execution starts, and running ones may finish."""
    await app.migrate()
    async with app, app.dispatcher():
        await app.run_worker()


def up(database: Database = None) -> None:
    """Run a dispatcher and a worker for the cron jobs in this process, until Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(serve(make_app(database) if database else default_app))
    except RowlockError as error:
        print(f"cronjobs: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def main() -> None:
    """The command line."""
    typer.run(up)
