"""The demo `engine`: a worker runs a mixed load of every kind of job."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rowlock.cli.kit.loop import run_async
from rowlock.cli.run.demo.load import Load
from rowlock.cli.run.demo.screen import Screen, counted, open_screen
from rowlock.cli.run.demo.tasks import QUEUE, app
from rowlock.client.settings import read_settings
from rowlock.store.engine.store import redact

if TYPE_CHECKING:
    from rowlock.core.job import Job

LOOK_SECONDS = 0.2
LONGEST_SECONDS = 50.0
SLOTS = 10


def play(url: str, config: str | None, live: bool) -> list[str]:
    """Run all jobs, print a summary, and return one line for each job that ended unexpectedly."""
    app.configure(read_settings(url, config))
    began = time.monotonic()
    load = Load()
    rows = run_async(_run(load, live))
    _summarise(rows, time.monotonic() - began)
    return load.mistakes(rows)


async def _run(load: Load, live: bool) -> list[Job]:
    await app.migrate()
    print(f"database   {redact(app.settings.database)}")
    async with app, app.worker(queues=[QUEUE], pool_size=SLOTS, shutdown_timeout_seconds=1) as worker:
        print(f"worker     {worker.id}, {SLOTS} slots", flush=True)
        await load.enqueue()
        with open_screen(live) as screen:
            return await _watch(load, screen)


async def _watch(load: Load, screen: Screen) -> list[Job]:
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        rows, events = await load.look(app)
        screen.update(rows, events)
        if all(row.final for row in rows) or time.monotonic() > deadline:
            return rows
        await asyncio.sleep(LOOK_SECONDS)


def _summarise(rows: list[Job], seconds: float) -> None:
    retried = sum(1 for row in rows if row.attempt > 1 and row.state == "succeeded")
    print()
    print(f"done       {len(rows)} jobs in {seconds:.1f} s: {counted(rows)}")
    print(f"           {retried} of them succeeded only after failures")
