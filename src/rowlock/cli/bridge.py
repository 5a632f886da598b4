"""`rowlock bridge`: between the database and the workers behind Redis, in a process of its own or beside a worker."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

from rowlock.cli.logs import configure_logs
from rowlock.cli.options import grouped_options
from rowlock.cli.target import Target, run_open
from rowlock.cli.worker_options import LogOptions

if TYPE_CHECKING:
    from rowlock.app import Rowlock

log = logging.getLogger("rowlock.bridge")

verbs = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@verbs.callback()
@grouped_options
def bridge(context: typer.Context, target: Target, logs: LogOptions) -> None:
    """Publish jobs of tasks with runs_on="redis" to Redis Streams, and write down what their workers report."""
    if context.invoked_subcommand is not None:
        return
    configure_logs(logs)
    run_open(target.open_code("bridge"), _run)


async def _run(app: Rowlock) -> None:
    await app.run_bridge()


@asynccontextmanager
async def bridging_beside(app: Rowlock) -> AsyncIterator[None]:
    """A bridge for as long as the block lasts, where Redis is configured and a task needs it."""
    if app.settings.redis.url is None:
        yield
        return
    if not app.registry.elsewhere():
        log.info("no bridge here: Redis is configured, and no task has runs_on='redis'")
        yield
        return
    async with app.bridge():
        yield
