"""`rowlock demo`: a worker runs a mixed load of every kind of job."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from rowlock import JobHandle, State
from rowlock_apps.stage import Stage, stage
from rowlock_apps.tour.load import Load
from rowlock_apps.tour.tasks import QUEUE, app

LOOK_SECONDS = 0.2
LONGEST_SECONDS = 50.0
SLOTS = 10

goes_on = app  # its worker goes on while the dashboard is shown, so that a retry there can be watched


async def play(database: str, live: bool) -> list[str]:
    """Run all jobs, print a summary, and return one line for each job that ended unexpectedly."""
    worker = app.settings.worker.model_copy(update={"queues": (QUEUE,)})
    app.configure(app.settings.model_copy(update={"database": database, "worker": worker}))
    began, load = time.monotonic(), Load()
    await app.migrate()
    async with app, app.worker(pool_size=SLOTS, shutdown_timeout_seconds=1) as pool:
        print(f"worker     {pool.id}, {SLOTS} slots", flush=True)
        await load.enqueue()
        with stage(live, line_seconds=0) as screen:
            jobs = await _watch(load, screen, live)
    _summarise(jobs, time.monotonic() - began)
    return load.mistakes(jobs)


async def _watch(load: Load, screen: Stage, live: bool) -> list[JobHandle[object]]:
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        jobs, events = await load.look(app)
        for event in events:
            screen.say(event)
        if live:
            screen.bars({f"{job.task} {job.message or ''}": (job.progress or 0, 100) for job in jobs if _moves(job)})
        screen.numbers("", _counts(jobs))
        if all(job.record.final for job in jobs) or time.monotonic() > deadline:
            return jobs
        await asyncio.sleep(LOOK_SECONDS)


def _moves(job: JobHandle[object]) -> bool:
    return job.state is State.RUNNING and job.progress is not None


def _counts(jobs: Sequence[JobHandle[object]]) -> dict[str, int]:
    counts = Counter(job.state for job in jobs)
    return {str(state): counts[state] for state in State if counts[state]}


def _summarise(jobs: Sequence[JobHandle[object]], seconds: float) -> None:
    retried = sum(1 for job in jobs if job.attempt > 1 and job.state is State.SUCCEEDED)
    counts = ", ".join(f"{count} {state}" for state, count in _counts(jobs).items())
    print()
    print(f"done       {len(jobs)} jobs in {seconds:.1f} s: {counts}")
    print(f"           {retried} of them succeeded only after failures")
